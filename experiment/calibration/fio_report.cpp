#include "experiment/calibration/fio_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/text_file.h"
#include "experiment/fio/fio_options.h"

namespace csdsim::experiment {
namespace {

using nlohmann::ordered_json;

/// The JSON text; fio may print warnings before it.
std::string json_text(const std::filesystem::path& file) {
  const std::string text = read_text_file(file, Bytes::mib(64));
  if (text.empty()) throw UserError(fmt::format("{}: is empty", file.string()));
  const std::size_t begin = text.starts_with('{') ? 0 : text.find("\n{");
  return begin == std::string::npos ? text : text.substr(begin);
}

/// What fio writes about one job, or about one clone of it.
class Job : public FioOptions {
 public:
  Job(const std::filesystem::path& file, const ordered_json& globals, const ordered_json& job)
      : FioOptions(file.string(), job.value("jobname", std::string("?")), globals, own(job)), job_(job) {}

  std::optional<FioFigures> figures(const char* direction) const {
    const auto at = job_.find(direction);
    if (at == job_.end() || !at->is_object() || at->value("total_ios", 0.0) <= 0) return {};
    FioFigures figures{.iops = at->value("iops", 0.0), .latency_ns = 0};
    for (const char* const latency : {"lat_ns", "clat_ns"})
      if (figures.latency_ns <= 0 && at->contains(latency)) figures.latency_ns = (*at)[latency].value("mean", 0.0);
    if (!(figures.iops > 0) || !(figures.latency_ns > 0))
      fail(fmt::format("{}: iops and lat_ns.mean have to be above 0", direction));
    return figures;
  }

  void check() const {
    refuse_what_is_not_simulated();
    if (job_.value("error", 0) != 0) fail(fmt::format("ended with error {}", job_["error"].dump()));
  }

 private:
  static ordered_json own(const ordered_json& job) {
    const auto at = job.find("job options");
    return at != job.end() && at->is_object() ? *at : ordered_json::object();
  }

  const ordered_json& job_;
};

FioPoint point_of(const Job& job) {
  job.check();
  FioPoint point{.name = job.name(), .pattern = job.pattern(), .request_size = job.block_size()};
  point.queue_depth = job.depth();
  const bool mixed = job.mixed();
  if (mixed) point.read_fraction = job.read_percent() / 100.0;
  point.read = job.figures("read");
  point.write = job.figures("write");
  const bool reads = point.pattern == Pattern::random_read || point.pattern == Pattern::sequential_read;
  if ((mixed || reads) != point.read.has_value() || (mixed || !reads) != point.write.has_value())
    job.fail("has not measured the reads or writes that rw asks for");
  return point;
}

/// Adds a clone's figures: rates add up, latencies are means.
void add_clone(std::optional<FioFigures>& sum, const std::optional<FioFigures>& clone) {
  if (!sum || !clone) return;
  sum->latency_ns = (sum->latency_ns * sum->iops + clone->latency_ns * clone->iops) / (sum->iops + clone->iops);
  sum->iops += clone->iops;
}

}  // namespace

FioReport read_fio(const std::filesystem::path& file) {
  ordered_json document;
  try {
    document = ordered_json::parse(json_text(file));
  } catch (const ordered_json::exception& error) {
    throw UserError(fmt::format("{}: is no JSON; run fio with --output-format=json ({})", file.string(), error.what()));
  }
  const ordered_json globals =
      document.is_object() ? document.value("global options", ordered_json::object()) : ordered_json::object();
  if (!document.is_object() || !document.contains("jobs") || !document["jobs"].is_array() || document["jobs"].empty())
    throw UserError(fmt::format("{}: has no jobs; run fio with --output-format=json", file.string()));
  FioReport report;
  std::optional<int> group;
  bool cached = false;
  std::uint32_t listed = 0;  // clones of the last point that have entries of their own
  try {
    for (const ordered_json& entry : document["jobs"]) {
      const Job job(file, globals, entry);
      const FioPoint point = point_of(job);
      cached = cached || job.option("direct").value_or("0") == "0";
      const std::uint32_t clones = job.count("numjobs", 1);
      const int groupid = entry.value("groupid", static_cast<int>(report.points.size()));
      if (group && *group == groupid) {
        FioPoint& last = report.points.back();
        if (last.name != point.name || ++listed > clones)
          job.fail(fmt::format("ran together with job '{}'; separate them with stonewall", printable(last.name)));
        add_clone(last.read, point.read);
        add_clone(last.write, point.write);
        continue;
      }
      group = groupid;
      listed = 1;
      report.points.push_back(point);
      report.points.back().clones = clones;
      report.points.back().queue_depth *= clones;
    }
  } catch (const ordered_json::exception& error) {
    throw UserError(fmt::format("{}: is not as fio writes it: {}", file.string(), error.what()));
  }
  if (cached)
    report.notes.push_back(
        fmt::format("{}: note: a job without direct=1 may have measured the page cache of the host", file.string()));
  return report;
}

}  // namespace csdsim::experiment
