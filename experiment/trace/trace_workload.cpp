#include "experiment/trace/trace_workload.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/text.h"
#include "experiment/block_io/block_result.h"
#include "experiment/block_io/check_block_workload.h"
#include "experiment/block_io/drive_notes.h"

namespace csdsim::experiment {

void describe(ParamVisitor& v, RecordedTiming& c) {
  v.param("speed", c.speed, {Ratio::of(1, 1'000'000), Ratio{1'000'000, 1}},
          "Replay speed relative to the recording: 2 halves the times between requests.", assumed("as recorded"));
}

void describe(ParamVisitor& v, FastTiming& c) {
  v.param("queue_depth", c.queue_depth, {1, 1'048'576}, "Requests in flight.", assumed("as for block_io"));
}

void TraceWorkload::describe(ParamVisitor& v) {
  v.optional("file", file, "none", "The trace file; required.", assumed("there is no usual trace"));
  v.param("format", format, "Format of the file.", assumed("the most used public block traces"));
  v.choice("timing", timing, "When requests are submitted.", assumed("the purpose of a trace"));
  v.param("beyond", beyond, "Treatment of requests beyond the working set.", assumed("traces are from other drives"));
  v.param("unaligned", unaligned, "Treatment of requests that are not whole logical blocks.",
          assumed("most traces count in 512-byte sectors"));
  v.param("streams", streams, "Addresses of the disks or files of a trace, of which each counts from 0.",
          assumed("disks and files do not share data"));
  v.optional("requests", requests, "all", {1, 1'000'000'000'000},
             "Requests that are measured; the rest of the file is not read.", assumed("the whole trace"));
  experiment::describe(v, common);
}

void TraceWorkload::check(scenario::Checker& c) {
  check_block_drive(c, kKind, common);
  note_drive_traps(c, {});
  c.require(file.has_value(), {"workload.file", "workload.kind"}, "workload.file: name the trace");
  if (file && c.resolve(*file, "workload.file", "trace")) {
    // Shorter than any record of any format.
    constexpr std::uint64_t kLeastRecord = 8;
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(file->path, error);
    c.require(!error, {"workload.file"}, fmt::format("workload.file: {} is no file", printable(file->given, 200)));
    c.require(error || common.warmup_requests <= size / kLeastRecord, {"workload.warmup_requests"},
              fmt::format("workload.warmup_requests: {} is more than the file has records", common.warmup_requests));
  }
  const csd_model::DeviceConfig& device = c.scenario().platform.device;
  const std::optional<Bytes> set = working_set_if_any(c.scenario(), common);
  if (set)
    c.require(*set >= device.nvme.block_size, {"workload.working_set", "platform.device.nvme.block_size"},
              fmt::format("workload.working_set: {} bytes do not hold one logical block of {}", set->value,
                          format_quantity(device.nvme.block_size)));
  if (const auto* fast = std::get_if<FastTiming>(&timing))
    check_queue_depth(c, fast->queue_depth, "workload.timing.queue_depth", common.queues);
}

void TraceWorkload::prune(nlohmann::ordered_json& config, const scenario::Scenario&) const { prune_attention(config); }

std::vector<MetricInfo> TraceWorkload::metrics(const scenario::Registries&) const { return block_metrics(); }

}  // namespace csdsim::experiment
