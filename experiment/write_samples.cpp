#include "experiment/write_samples.h"

#include <fmt/format.h>

#include <algorithm>

namespace csdsim::experiment {

using nlohmann::ordered_json;

std::vector<WriteSample> merged(const std::vector<WriteSample>& samples, std::size_t most) {
  std::vector<WriteSample> all;
  const std::size_t n = samples.size(), pieces = std::min(n, most);
  for (std::size_t i = 0; i < pieces; ++i) {
    WriteSample sum;
    for (std::size_t k = n * i / pieces; k < n * (i + 1) / pieces; ++k) {
      sum.at = samples[k].at;
      sum.work += samples[k].work;
    }
    all.push_back(sum);
  }
  return all;
}

ftl::WriteWork late_work(const std::vector<WriteSample>& samples) {
  ftl::WriteWork work;
  for (std::size_t i = late_from(samples.size()); i < samples.size(); ++i) work += samples[i].work;
  return work;
}

ordered_json sample_rows(const std::vector<WriteSample>& samples, std::string_view at) {
  ordered_json rows = ordered_json::array();
  for (const WriteSample& sample : samples) {
    ordered_json row{{std::string(at), sample.at}, {"write_amplification", sample.work.amplification()}};
    if (sample.work.written > 0)
      for (const ftl::WriteWork::Part& part : ftl::WriteWork::parts())
        row[std::string(part.name)] = sample.work.share_of(part);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string samples_csv(const std::vector<WriteSample>& samples, std::string_view at) {
  std::string csv = fmt::format("{},write_amplification", at);
  for (const ftl::WriteWork::Part& part : ftl::WriteWork::parts()) csv += fmt::format(",{}", part.name);
  csv += "\n";
  for (const WriteSample& sample : samples) {
    csv += fmt::format("{:.6g},{:.6g}", sample.at, sample.work.amplification());
    for (const ftl::WriteWork::Part& part : ftl::WriteWork::parts())
      csv += fmt::format(",{:.6g}", sample.work.written > 0 ? sample.work.share_of(part) : 0);
    csv += "\n";
  }
  return csv;
}

ordered_json sample_curves(const std::vector<WriteSample>& samples, const std::vector<double>& times) {
  ordered_json curves = ordered_json::object();
  if (samples.empty()) return curves;
  const auto curve = [&](auto value) {
    ordered_json values = ordered_json::array();
    for (std::size_t i = 0, piece = 0; i < times.size(); ++i) {
      while (piece + 1 < samples.size() && samples[piece].at < times[i]) ++piece;
      values.push_back(value(samples[piece].work));
    }
    return values;
  };
  curves["all"] = curve([](const ftl::WriteWork& work) { return work.amplification(); });
  for (const ftl::WriteWork::Part& part : ftl::WriteWork::parts()) {
    const auto has = [&](const WriteSample& sample) { return sample.work.*part.pages > 0; };
    if (std::ranges::any_of(samples, has))
      curves[std::string(part.name)] =
          curve([&](const ftl::WriteWork& work) { return work.written > 0 ? work.share_of(part) : 0; });
  }
  return curves;
}

}  // namespace csdsim::experiment
