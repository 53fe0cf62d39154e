#include "experiment/calibration/fio_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/text_file.h"

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

using OptionNames = std::set<std::string, std::less<>>;

/// Options that are read here.
const OptionNames kReadOptions{"bs",     "blocksize", "rw",        "readwrite",  "iodepth", "ioengine",
                               "direct", "numjobs",   "rwmixread", "rwmixwrite", "filename"};

/// Options that say where a job runs, how long, what its buffers hold and what it writes down, but not which requests
/// it sends when (fio 3.33, fio --cmdhelp=all; fio writes the first name of an option that has several).
const OptionNames kHarmlessOptions{"name",
                                   "directory",
                                   "filename_format",
                                   "description",
                                   "size",
                                   "filesize",
                                   "io_size",
                                   "io_limit",
                                   "offset",
                                   "offset_align",
                                   "runtime",
                                   "timeout",
                                   "time_based",
                                   "ramp_time",
                                   "startdelay",
                                   "loops",
                                   "number_ios",
                                   "stonewall",
                                   "wait_for_previous",
                                   "wait_for",
                                   "group_reporting",
                                   "new_group",
                                   "thread",
                                   "norandommap",
                                   "randrepeat",
                                   "randseed",
                                   "allrandrepeat",
                                   "softrandommap",
                                   "random_generator",
                                   "invalidate",
                                   "fallocate",
                                   "unlink",
                                   "overwrite",
                                   "create_serialize",
                                   "create_fsync",
                                   "create_on_open",
                                   "create_only",
                                   "file_append",
                                   "fadvise_hint",
                                   "refill_buffers",
                                   "zero_buffers",
                                   "scramble_buffers",
                                   "buffer_pattern",
                                   "buffer_compress_percentage",
                                   "buffer_compress_chunk",
                                   "dedupe_percentage",
                                   "cpus_allowed",
                                   "cpus_allowed_policy",
                                   "cpumask",
                                   "numa_cpu_nodes",
                                   "numa_mem_policy",
                                   "nice",
                                   "prio",
                                   "prioclass",
                                   "mem",
                                   "iomem",
                                   "mem_align",
                                   "iomem_align",
                                   "hugepage-size",
                                   "lockmem",
                                   "hipri",
                                   "userspace_reap",
                                   "registerfiles",
                                   "fixedbufs",
                                   "sqthread_poll",
                                   "sqthread_poll_cpu",
                                   "nonvectored",
                                   "uncached",
                                   "clocksource",
                                   "gtod_cpu",
                                   "clat_percentiles",
                                   "lat_percentiles",
                                   "slat_percentiles",
                                   "percentile_list",
                                   "significant_figures",
                                   "write_bw_log",
                                   "write_lat_log",
                                   "write_iops_log",
                                   "write_hist_log",
                                   "write_iolog",
                                   "log_avg_msec",
                                   "log_hist_msec",
                                   "log_max_value",
                                   "log_offset",
                                   "log_compression",
                                   "per_job_logs",
                                   "bwavgtime",
                                   "iopsavgtime",
                                   "end_fsync",
                                   "exitall",
                                   "exitall_on_error",
                                   "continue_on_error",
                                   "ignore_error",
                                   "max_latency",
                                   "steadystate",
                                   "steadystate_duration",
                                   "ss",
                                   "ss_dur",
                                   "ss_ramp",
                                   "disk_util",
                                   "allow_mounted_write",
                                   "exec_prerun",
                                   "exec_postrun",
                                   "allow_file_create",
                                   "block_error_percentiles",
                                   "cmd_type",
                                   "dedupe_global",
                                   "dedupe_mode",
                                   "dedupe_working_set_percentage",
                                   "disable_bw_measurement",
                                   "error_dump",
                                   "exit_what",
                                   "force_async",
                                   "fsync_on_close",
                                   "gid",
                                   "log_alternate_epoch",
                                   "log_alternate_epoch_clock_id",
                                   "log_compression_cpus",
                                   "log_entries",
                                   "log_hist_coarseness",
                                   "log_prio",
                                   "log_store_compressed",
                                   "log_unix_epoch",
                                   "nowait",
                                   "pre_read",
                                   "stats",
                                   "steadystate_ramp_time",
                                   "uid",
                                   "unique_filename",
                                   "unlink_each_loop"};

/// Options that say more about others (rate, thinktime, verify, nrfiles, latency_target, flow), which are refused.
const OptionNames kSubordinateOptions{"file_service_type",
                                      "flow_id",
                                      "flow_sleep",
                                      "latency_percentile",
                                      "latency_run",
                                      "latency_window",
                                      "rate_cycle",
                                      "rate_ignore_thinktime",
                                      "rate_process",
                                      "thinktime_blocks",
                                      "thinktime_blocks_type",
                                      "thinktime_iotime",
                                      "thinktime_spin",
                                      "verify_async",
                                      "verify_backlog_batch",
                                      "verify_dump",
                                      "verify_fatal",
                                      "verify_interval",
                                      "verify_offset"};

/// Engines that send a job's requests to a drive or file as they are.
const OptionNames kEngines{"sync",     "psync",        "vsync",    "pvsync",     "pvsync2",
                           "mmap",     "libaio",       "posixaio", "solarisaio", "windowsaio",
                           "io_uring", "io_uring_cmd", "sg",       "xnvme",      "libblkio"};

/// Options that leave the load as it is where they have fio's own default.
const std::map<std::string, OptionNames, std::less<>> kUsualValues{{"bsrange", {"0"}},
                                                                   {"bssplit", {"0"}},
                                                                   {"rate", {"0"}},
                                                                   {"rate_iops", {"0"}},
                                                                   {"rate_min", {"0"}},
                                                                   {"thinktime", {"0"}},
                                                                   {"random_distribution", {"random"}},
                                                                   {"kb_base", {"1024"}},
                                                                   {"unit_base", {"0", "8"}},
                                                                   {"zonemode", {"none"}},
                                                                   {"fsync", {"0"}},
                                                                   {"fdatasync", {"0"}},
                                                                   {"sync", {"0", "none"}},
                                                                   {"write_barrier", {"0"}},
                                                                   {"iodepth_batch", {"1"}},
                                                                   {"iodepth_batch_submit", {"1"}},
                                                                   {"iodepth_batch_complete", {"1"}},
                                                                   {"iodepth_batch_complete_min", {"1"}},
                                                                   {"iodepth_batch_complete_max", {"1"}},
                                                                   {"nrfiles", {"1"}},
                                                                   {"openfiles", {"1"}},
                                                                   {"percentage_random", {"100"}},
                                                                   {"verify", {"0", "none"}},
                                                                   {"do_verify", {"0"}},
                                                                   {"offset_increment", {"0"}},
                                                                   {"iodepth_low", {"0"}},
                                                                   {"serialize_overlap", {"0"}},
                                                                   {"io_submit_mode", {"inline"}},
                                                                   {"latency_target", {"0"}},
                                                                   {"rwmixcycle", {"0"}},
                                                                   {"gtod_reduce", {"0"}},
                                                                   {"disable_lat", {"0"}},
                                                                   {"disable_clat", {"0"}},
                                                                   {"disable_slat", {"0"}},
                                                                   {"unified_rw_reporting", {"0", "none"}},
                                                                   {"bs_unaligned", {"0"}},
                                                                   {"blocksize_unaligned", {"0"}},
                                                                   {"flow", {"0"}},
                                                                   {"atomic", {"0"}},
                                                                   {"buffered", {"0"}},
                                                                   {"read_iolog", {""}},
                                                                   {"rate_iops_min", {"0"}},
                                                                   {"lockfile", {"none"}},
                                                                   {"rw_sequencer", {"sequential"}},
                                                                   {"fill_device", {"0"}},
                                                                   {"verify_only", {"0"}},
                                                                   {"write_hint", {"none"}},
                                                                   {"readfua", {"0"}},
                                                                   {"writefua", {"0"}},
                                                                   {"sg_write_mode", {"write"}}};

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

  /// Files of one job; fio separates them by colons, and a colon of a name has a backslash before it.
  std::size_t files() const {
    const std::string names = option("filename").value_or("");
    std::size_t count = 1;
    for (std::size_t i = 1; i < names.size(); ++i)
      if (names[i] == ':' && names[i - 1] != '\\') ++count;
    return count;
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

  /// Refuses every option that is not known to leave the load as it is.
  void refuse_what_is_not_simulated() const {
    for (const ordered_json* const from : {&globals_, &own()})
      for (const auto& [name, value] : from->items()) {
        const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        if (kReadOptions.contains(name) || kHarmlessOptions.contains(name) || kSubordinateOptions.contains(name))
          continue;
        const auto usual = kUsualValues.find(name);
        if (usual != kUsualValues.end() && usual->second.contains(text)) continue;
        fail(fmt::format("{} is not simulated, or not known to leave the load as it is ('{}'); measure without it",
                         printable(name), printable(text)));
      }
    const std::string engine = option("ioengine").value_or("psync");
    if (!kEngines.contains(engine))
      fail(fmt::format("ioengine '{}' is not known to send the requests of a job to a drive; known: {}",
                       printable(engine), fmt::join(kEngines, ", ")));
    if (files() > 1)
      fail(fmt::format("filename '{}' names {} files or drives, whose requests fio deals out in turn; measure one",
                       printable(option("filename").value_or("")), files()));
    if (job_.value("error", 0) != 0) fail(fmt::format("ended with error {}", job_["error"].dump()));
  }

  /// Share of reads of a mixed load. What the job itself says comes before what all jobs have. Of rwmixread and
  /// rwmixwrite the last one counts in fio; both may be given when they say the same.
  double read_fraction() const {
    const bool of_job = own().contains("rwmixread") || own().contains("rwmixwrite");
    const auto given = [&](const char* key) { return of_job && !own().contains(key) ? std::nullopt : option(key); };
    const std::optional<std::string> reads = given("rwmixread"), writes = given("rwmixwrite");
    const std::uint32_t of_reads = writes ? 100 - std::min(100u, count("rwmixwrite", 50)) : count("rwmixread", 50);
    if (reads && count("rwmixread", 50) != of_reads)
      fail(fmt::format("rwmixread={} contradicts rwmixwrite={}", printable(*reads), printable(*writes)));
    if (of_reads == 0 || of_reads >= 100) fail("rwmixread and rwmixwrite have to be from 1 to 99");
    return of_reads / 100.0;
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
    point.read_fraction = job.read_fraction();
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
