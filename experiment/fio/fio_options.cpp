#include "experiment/fio/fio_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace csdsim::experiment {
namespace {

using nlohmann::ordered_json;

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

}  // namespace

void FioOptions::fail(const std::string& what, std::string_view option) const {
  const auto line = lines_.find(option);
  const std::string where = line == lines_.end() ? file_ : fmt::format("{}:{}: error", file_, line->second);
  throw UserError(fmt::format("{}: job '{}': {}", where, printable(name_), what));
}

std::optional<std::string> FioOptions::option(const char* key, const char* other_name) const {
  for (const ordered_json* const from : {&own_, &globals_})
    for (const char* const name : {key, other_name})
      if (const auto at = from->find(name); at != from->end())
        return at->is_string() ? at->get<std::string>() : at->dump();
  return {};
}

bool FioOptions::flag(const char* key) const {
  const std::string text = option(key).value_or("0");
  if (text == "1" || text == "true") return true;
  if (text != "0" && text != "false") fail(fmt::format("{} is '{}', expected 0 or 1", key, printable(text)), key);
  return false;
}

std::size_t FioOptions::files() const {
  const std::string names = option("filename").value_or("");
  std::size_t count = 1;
  for (std::size_t i = 1; i < names.size(); ++i)
    if (names[i] == ':' && names[i - 1] != '\\') ++count;
  return count;
}

std::uint32_t FioOptions::count(const char* key, std::uint32_t otherwise) const {
  const std::optional<std::string> text = option(key);
  if (!text) return otherwise;
  std::uint32_t value = 0;
  const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (code != std::errc() || end != text->data() + text->size() || value == 0)
    fail(fmt::format("{} is '{}', expected a number from 1 on", key, printable(*text)), key);
  return value;
}

Bytes FioOptions::block_size() const {
  const std::string text = option("bs", "blocksize").value_or("4k");
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  constexpr std::string_view kUnits = "kmg";
  const std::size_t power = unit.empty() ? 0 : kUnits.find(static_cast<char>(unit[0] | 0x20)) + 1;
  if (code != std::errc() || value == 0 || value >> 30 != 0 || unit.size() > 1 || power > kUnits.size() ||
      (!unit.empty() && power == 0))
    fail(fmt::format("bs is '{}', expected one size such as 4k or 128k", printable(text)), "bs");
  return Bytes{value << (10 * power)};
}

Pattern FioOptions::pattern() const {
  const std::string rw = option("rw", "readwrite").value_or("read");
  for (const auto& [name, pattern] : {std::pair{"read", Pattern::sequential_read},
                                      {"write", Pattern::sequential_write},
                                      {"rw", Pattern::sequential_mixed},
                                      {"readwrite", Pattern::sequential_mixed},
                                      {"randread", Pattern::random_read},
                                      {"randwrite", Pattern::random_write},
                                      {"randrw", Pattern::random_mixed}})
    if (rw == name) return pattern;
  fail(fmt::format("rw is '{}', expected read, write, rw, randread, randwrite or randrw", printable(rw)), "rw");
}

std::uint32_t FioOptions::depth() const {
  static const std::set<std::string> kWaiting{"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"};
  return kWaiting.contains(option("ioengine").value_or("psync")) ? 1 : count("iodepth", 1);
}

void FioOptions::refuse_what_is_not_simulated(const std::vector<std::string>& read_by_caller) const {
  for (const ordered_json* const from : {&globals_, &own_})
    for (const auto& [name, value] : from->items()) {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      if (kReadOptions.contains(name) || kHarmlessOptions.contains(name) || kSubordinateOptions.contains(name) ||
          std::ranges::find(read_by_caller, name) != read_by_caller.end())
        continue;
      const auto usual = kUsualValues.find(name);
      if (usual != kUsualValues.end() && usual->second.contains(text)) continue;
      fail(fmt::format("{} is not simulated, or not known to leave the load as it is ('{}'); leave it out",
                       printable(name), printable(text)),
           name);
    }
  const std::string engine = option("ioengine").value_or("psync");
  if (!kEngines.contains(engine))
    fail(fmt::format("ioengine '{}' is not known to send the requests of a job to a drive; known: {}",
                     printable(engine), fmt::join(kEngines, ", ")),
         "ioengine");
  if (files() > 1)
    fail(fmt::format("filename '{}' names {} files or drives, whose requests fio deals out in turn; measure one",
                     printable(option("filename").value_or("")), files()),
         "filename");
}

std::uint32_t FioOptions::read_percent() const {
  const bool of_job = own_.contains("rwmixread") || own_.contains("rwmixwrite");
  const auto given = [&](const char* key) { return of_job && !own_.contains(key) ? std::nullopt : option(key); };
  const std::optional<std::string> reads = given("rwmixread"), writes = given("rwmixwrite");
  const std::uint32_t of_reads = writes ? 100 - std::min(100u, count("rwmixwrite", 50)) : count("rwmixread", 50);
  if (reads && count("rwmixread", 50) != of_reads)
    fail(fmt::format("rwmixread={} contradicts rwmixwrite={}", printable(*reads), printable(*writes)), "rwmixread");
  if (of_reads == 0 || of_reads >= 100)
    fail("rwmixread and rwmixwrite have to be from 1 to 99", writes ? "rwmixwrite" : "rwmixread");
  return of_reads;
}

bool FioOptions::mixed() const { return pattern() == Pattern::random_mixed || pattern() == Pattern::sequential_mixed; }

}  // namespace csdsim::experiment
