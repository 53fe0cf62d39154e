#include "experiment/calibration/fio_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace csdsim::experiment {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

/// The JSON text; fio may print warnings before it.
std::string json_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.gcount() == 0) throw UserError(fmt::format("{}: cannot be read, or is empty", file.string()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMostBytes)
    throw UserError(fmt::format("{}: larger than the limit of {} MiB", file.string(), kMostBytes >> 20));
  const std::size_t begin = text.starts_with('{') ? 0 : text.find("\n{");
  return begin == std::string::npos ? text : text.substr(begin);
}

/// The jobs of one group: one job, or the clones of one.
class Job {
 public:
  Job(const std::filesystem::path& file, const ordered_json& globals, const ordered_json& job)
      : file_(file), globals_(globals), job_(job) {}

  std::string name() const { return job_.value("jobname", std::string("?")); }

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("{}: job '{}': {}", file_.string(), printable(name()), what));
  }

  /// The text of an option, of the job or of all jobs.
  std::optional<std::string> option(const char* key, const char* other_name = "") const {
    for (const ordered_json* const from : {&own(), &globals_})
      for (const char* const name : {key, other_name})
        if (const auto at = from->find(name); at != from->end())
          return at->is_string() ? at->get<std::string>() : at->dump();
    return {};
  }

  std::uint32_t count(const char* key, std::uint32_t otherwise) const {
    const std::optional<std::string> text = option(key);
    if (!text) return otherwise;
    std::uint32_t value = 0;
    const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (code != std::errc() || end != text->data() + text->size() || value == 0)
      fail(fmt::format("{} is '{}', expected a number from 1 on", key, printable(*text)));
    return value;
  }

  Bytes block_size() const {
    const std::string text = option("bs", "blocksize").value_or("4k");
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string unit(end, text.data() + text.size());
    constexpr std::string_view kUnits = "kmg";
    const std::size_t power = unit.empty() ? 0 : kUnits.find(static_cast<char>(unit[0] | 0x20)) + 1;
    if (code != std::errc() || value == 0 || value >> 30 != 0 || unit.size() > 1 || power > kUnits.size() ||
        (!unit.empty() && power == 0))
      fail(fmt::format("bs is '{}', expected one size such as 4k or 128k", printable(text)));
    return Bytes{value << (10 * power)};
  }

  Pattern pattern() const {
    const std::string rw = option("rw", "readwrite").value_or("read");
    for (const auto& [name, pattern] : {std::pair{"read", Pattern::sequential_read},
                                        {"write", Pattern::sequential_write},
                                        {"rw", Pattern::sequential_mixed},
                                        {"readwrite", Pattern::sequential_mixed},
                                        {"randread", Pattern::random_read},
                                        {"randwrite", Pattern::random_write},
                                        {"randrw", Pattern::random_mixed}})
      if (rw == name) return pattern;
    fail(fmt::format("rw is '{}', expected read, write, rw, randread, randwrite or randrw", printable(rw)));
  }

  /// Requests in flight of each clone. Engines that wait for each request have one.
  std::uint32_t depth() const {
    static const std::set<std::string> kWaiting{"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"};
    return kWaiting.contains(option("ioengine").value_or("psync")) ? 1 : count("iodepth", 1);
  }

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

  void refuse_what_is_not_simulated() const {
    for (const char* const key : {"bsrange", "bssplit", "rate", "rate_iops", "rate_min", "thinktime",
                                  "random_distribution", "kb_base", "zonemode"})
      if (const auto value = option(key); value && *value != "0" && *value != "random")
        fail(fmt::format("{} is not simulated; measure without it", key));
    if (job_.value("error", 0) != 0) fail(fmt::format("ended with error {}", job_["error"].dump()));
  }

 private:
  const ordered_json& own() const {
    static const ordered_json none = ordered_json::object();
    const auto at = job_.find("job options");
    return at != job_.end() && at->is_object() ? *at : none;
  }

  const std::filesystem::path& file_;
  const ordered_json& globals_;
  const ordered_json& job_;
};

FioPoint point_of(const Job& job) {
  job.refuse_what_is_not_simulated();
  FioPoint point{.name = job.name(), .pattern = job.pattern(), .request_size = job.block_size()};
  point.queue_depth = job.depth();
  const bool mixed = point.pattern == Pattern::random_mixed || point.pattern == Pattern::sequential_mixed;
  if (mixed) {
    const std::uint32_t reads = job.count("rwmixread", 50);
    if (reads >= 100) job.fail("rwmixread has to be below 100");
    point.read_fraction = reads / 100.0;
  }
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
