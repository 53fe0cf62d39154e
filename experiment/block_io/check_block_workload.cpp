#include <fmt/format.h>

#include <algorithm>

#include "experiment/assemble.h"
#include "experiment/block_io/block_workload.h"
#include "experiment/block_io/check_block_workload.h"
#include "experiment/block_io/check_blocks.h"
#include "experiment/block_io/common_setup.h"
#include "experiment/block_io/drive_notes.h"

namespace csdsim::experiment {

using scenario::Checker;
using workload::Placement;

namespace {

void check_sizes(Checker& c, const BlockIoWorkload& work) {
  const Bytes block = c.scenario().platform.device.nvme.block_size;
  constexpr std::string_view kBlock = "platform.device.nvme.block_size";
  const std::string_view key = work.request_sizes.empty() ? "workload.request_size" : "workload.request_sizes";
  const std::optional<Bytes> set = working_set_if_any(c.scenario(), work.common);
  for (const Bytes size : work.sizes()) {
    c.require(size.value % block.value == 0 && size.value > 0, {key, kBlock},
              fmt::format("{}: {} is not a multiple of the logical block of {}", key, format_quantity(size),
                          format_quantity(block)));
    if (!set) continue;
    c.require(
        size * work.streams <= *set, {"workload.working_set", "workload.streams", key},
        fmt::format("workload.working_set: {} bytes do not hold a request of {}{}", set->value, format_quantity(size),
                    work.streams == 1 ? "" : fmt::format(" for each of {} streams", work.streams)));
  }
  if (work.alignment) {
    c.require(work.alignment->value % block.value == 0, {"workload.alignment", kBlock},
              fmt::format("workload.alignment: {} is not a multiple of the logical block of {}",
                          format_quantity(*work.alignment), format_quantity(block)));
  }
  if (work.request_sizes.empty()) {
    c.require(work.request_weights.empty(), {"workload.request_weights"},
              "workload.request_weights: there are no request_sizes to weight");
    return;
  }
  c.refuse_unused("workload.request_size", "workload.request_sizes", "request_sizes gives the sizes");
  c.require(work.request_weights.empty() || work.request_weights.size() == work.request_sizes.size(),
            {"workload.request_weights", "workload.request_sizes"},
            fmt::format("workload.request_weights: {} weights for {} request_sizes", work.request_weights.size(),
                        work.request_sizes.size()));
  std::uint64_t weights = work.request_weights.empty() ? 1 : 0;
  for (const std::uint32_t weight : work.request_weights) weights += weight;
  c.require(weights > 0, {"workload.request_weights"}, "workload.request_weights: all of them are 0");
}

void check_pattern(Checker& c, const BlockIoWorkload& work) {
  const bool reads_only = !work.mixed() && work.reads() == Ratio{1, 1};
  const auto mixed = [&] {
    return name_of(work.placement() == Placement::sequential ? Pattern::sequential_mixed
                   : work.placement() == Placement::zipf     ? Pattern::zipf_mixed
                                                             : Pattern::random_mixed);
  };
  if (work.read_fraction && !work.mixed()) {
    c.require(*work.read_fraction == work.reads(), {"workload.read_fraction", "workload.pattern"},
              fmt::format("workload.read_fraction: {} disagrees with pattern {}; use {}",
                          format_quantity(*work.read_fraction), name_of(work.pattern), mixed()));
  }
  c.require(work.trim_fraction.numerator == 0 || !reads_only, {"workload.trim_fraction", "workload.pattern"},
            fmt::format("workload.trim_fraction: {} disagrees with pattern {}; use {}",
                        format_quantity(work.trim_fraction), name_of(work.pattern), mixed()));
  c.require(!work.zipf_exponent || work.placement() == Placement::zipf, {"workload.zipf_exponent", "workload.pattern"},
            fmt::format("workload.zipf_exponent: pattern {} has none; use a zipf pattern", name_of(work.pattern)));
}

void check_loop(Checker& c, const BlockIoWorkload& work) {
  if (work.duration) c.refuse_unused("workload.requests", "workload.duration", "duration ends the run");
  if (work.open()) {
    c.refuse_unused("workload.queue_depth", "workload.arrival.kind",
                    "an open loop does not limit the requests in flight");
    return;
  }
  check_queue_depth(c, work.queue_depth, "workload.queue_depth", work.common.queues);
  c.require(work.streams <= work.queue_depth, {"workload.streams", "workload.queue_depth"},
            fmt::format("workload.streams: {} streams share {} requests in flight: each needs one", work.streams,
                        work.queue_depth));
}

}  // namespace

void check_queue_depth(Checker& c, std::uint32_t depth, std::string_view key, std::optional<std::uint32_t> queues) {
  const nvme::NvmeConfig& nvme = c.scenario().platform.device.nvme;
  // A ring of n entries holds n-1 commands.
  const std::uint32_t used = queues.value_or(nvme.queues);
  const std::uint64_t slots = std::uint64_t{used} * (nvme.queue_depth - 1);
  c.require(depth <= slots, {key, "workload.queues", "platform.device.nvme.queues", "platform.device.nvme.queue_depth"},
            fmt::format("{}: {} requests do not fit into {} queues of {} entries ({} commands)", key, depth, used,
                        nvme.queue_depth, slots));
}

std::optional<Bytes> working_set_if_any(const scenario::Scenario& s, const BlockRunConfig& config) {
  const std::optional<Bytes> exported = exported_capacity_if_any(s);
  return exported ? std::optional(share_of(*exported, config.working_set)) : std::nullopt;
}

void check_block_drive(Checker& c, std::string_view kind, const BlockRunConfig& config) {
  const csd_model::DeviceConfig& device = c.scenario().platform.device;
  for (const std::string_view path : {"model", "system", "simulation.selection", "simulation.sampling"}) {
    if (c.given(path)) c.note_at(path, fmt::format("{} has no effect in a {} workload", path, kind));
  }
  c.refuse_unused("platform.device.energy.mac", "workload.kind",
                  fmt::format("a {} workload computes no attention", kind));
  const bool carried = c.scenario().simulation.data == ftl::DataMode::carried;
  if (device.nvme.power)
    c.require(carried, {"simulation.data", "platform.device.nvme.power"},
              "simulation.data: what a cut of the power leaves is known only where data is carried: use carried");
  else
    c.require(
        !carried, {"simulation.data", "workload.kind"},
        fmt::format(
            "simulation.data: a {} workload moves no data: use timing (or cut the power, platform.device.nvme.power)",
            kind));
  c.require(!carried || config.precondition.overwrites.numerator == 0,
            {"workload.precondition.overwrites", "simulation.data"},
            "workload.precondition.overwrites: a drive that carries data cannot be aged in no time");
  c.require(device.count == 1, {"platform.device.count"},
            fmt::format("platform.device.count: {} drives; a {} workload addresses one", device.count, kind));
  if (config.queues) {
    c.require(
        *config.queues <= device.nvme.queues, {"workload.queues", "platform.device.nvme.queues"},
        fmt::format("workload.queues: {} of the {} queues that the drive has", *config.queues, device.nvme.queues));
  }
  c.require(config.precondition.overwrites.numerator == 0 || config.precondition.fill != Fill::none,
            {"workload.precondition.overwrites", "workload.precondition.fill"},
            "workload.precondition.overwrites: with fill: none there is nothing to overwrite");
  check_blocks_and_queues(c);
}

void BlockIoWorkload::check(Checker& c) {
  const BlockIoWorkload& work = *this;
  check_block_drive(c, BlockIoWorkload::kKind, work.common);
  if (work.flows) {
    if (work.duration) c.refuse_unused("workload.requests", "workload.duration", "duration ends the run");
    return check_flows(c, work);
  }
  note_drive_traps(c, traffic_of(work));
  check_sizes(c, work);
  check_pattern(c, work);
  check_loop(c, work);
  if (work.common.queue_assignment == QueueAssignment::stream) {
    const std::uint32_t used = work.common.queues.value_or(c.scenario().platform.device.nvme.queues);
    c.require(used <= work.streams, {"workload.queue_assignment", "workload.queues", "workload.streams"},
              fmt::format("workload.queue_assignment: {} of {} queues are left without a stream; set queues or streams",
                          used - std::min(used, work.streams), used));
  }
}

}  // namespace csdsim::experiment
