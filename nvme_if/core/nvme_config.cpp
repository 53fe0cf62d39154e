#include "nvme_if/core/nvme_config.h"

#include "base/param.h"

namespace csdsim::nvme {
void describe(ParamVisitor&, SingleInterrupts&) {}

void describe(ParamVisitor& v, CoalescedInterrupts& c) {
  v.param("completions", c.completions, {2, 256}, "So many since the last interrupt of the queue bring the next one.",
          assumed("a burst of 16 entries is what the controller fetches at once"));
  v.param("time", c.time, {SimTime::microseconds(100), SimTime::microseconds(25'500)},
          "How long the first of them waits for the others at most: a multiple of 100 us.",
          datasheet("NVMe Base 1.4, 5.21.1.8: the least"));
}

void describe(ParamVisitor& v, DriveLoss& c) {
  v.param("drive", c.drive, {0, 63}, "Which drive, from 0 on.", assumed("the first"));
  v.param("at", c.at, {SimTime{}, SimTime::milliseconds(1'000'000'000)}, "When, in simulated time.",
          assumed("it is not there when the host starts"));
}

void describe(ParamVisitor& v, PowerConfig& c) {
  v.list("cuts", c.cuts, {1, 1024},
         "When the power fails, in simulated time: each after the drive was on again for the last time, the first "
         "after the host has brought the drive up.",
         assumed("one, while a run goes on"));
  v.param("off_time", c.off_time, {SimTime{1}, SimTime::milliseconds(1'000'000'000)},
          "From each cut until the power is back.", assumed("a supply that drops out for a moment"));
}

void describe(ParamVisitor& v, FdpConfig& c) {
  v.param(
      "enabled", c.enabled,
      "The drive is delivered with Flexible Data Placement enabled in its endurance group. A host can change it only "
      "while the group has no namespace (Set Features 1Dh).",
      assumed("on: a drive that is ordered for it"));
  v.list("placement_handles", c.placement_handles, {0, 128},
         "Reclaim unit handle of each placement handle of the namespace; empty: all of ftl.placement.handles in their "
         "order.",
         assumed("a namespace that uses all"));
}

void describe(ParamVisitor& v, NvmeConfig& c) {
  v.param("queues", c.queues, {1, 1024}, "Pairs of I/O queues.", assumed("a host with a few submitting threads"));
  v.param("queue_depth", c.queue_depth, {2, 65'536}, "Entries of an I/O queue.", assumed("common driver default"));
  v.choice("interrupts", c.interrupts, "When the controller interrupts the host.",
           assumed("drivers leave coalescing off"));
  v.param("mdts", c.mdts, {Bytes::kib(4), Bytes::gib(1)}, "Largest data transfer of a command: a power of two.",
          assumed("common for data-centre drives"));
  v.param("block_size", c.block_size, {Bytes{512}, Bytes::kib(64)}, "Logical block of the namespace: a power of two.",
          assumed("the usual page"));
  v.param("firmware_time", c.firmware_time, {SimTime{}, SimTime::milliseconds(100)},
          "Firmware work of a command before it runs.", assumed("0: not stated by any paper"));
  v.param("pipeline_time", c.pipeline_time, {SimTime{}, SimTime::milliseconds(100)},
          "Fixed latency of a command in the controller, beside firmware_time. It does not limit the rate of commands.",
          assumed("0: data sheets state latencies as a whole"));
  v.param("firmware_cores", c.firmware_cores, {1, 64}, "Cores that do the firmware work, each one command at a time.",
          assumed("one is the least"));
  v.param("command_slots", c.command_slots, {1, 65'536},
          "Commands that the controller holds; further ones wait in their queues.",
          assumed("more than most hosts keep in flight; MQSim fetches 512"));
  v.list("queue_priorities", c.queue_priorities, {0, 1024},
         "Class of each I/O queue, from which the controller fetches by weighted round robin with an urgent class; "
         "empty: the queues take turns.",
         assumed("drivers leave it at round robin"));
  v.list("priority_weights", c.priority_weights, {3, 3},
         "Commands that the classes high, medium and low may have fetched in a round: 1 to 256.",
         assumed("each twice the next"));
  v.param("granularity", c.granularity, "What one attention command covers.",
          assumed("fewest commands; the paper states none"));
  v.param("transfer", c.transfer, "How K, V and attention outputs travel between GPU and drive.",
          assumed("the drive reaches GPU memory through the switch"));
  v.param("data_pointer", c.data_pointer, "How I/O commands point at their data in the memory of host and GPU.",
          assumed("every controller takes PRPs"));
  v.param("timeout", c.timeout, {SimTime::microseconds(1), SimTime::milliseconds(1'000'000'000)},
          "A command that is not complete so long after the host placed it in its queue ends the run with an error.",
          assumed("Linux: nvme_core.io_timeout of 30 s"));
  v.optional_section("loss", c.loss, "none",
                     "A drive disappears: it takes no more commands, and nothing that it completes reaches the host.",
                     assumed("drives do not disappear"));
  v.optional_section(
      "power", c.power, "none",
      "The power of the drive fails and comes back, under block commands and generations that carry data "
      "(docs/durability.md).",
      assumed("the power stays on"));
  v.optional_section("fdp", c.fdp, "none",
                     "Flexible Data Placement (NVMe 2.0 with TP4146): writes may say which reclaim unit handle they "
                     "belong to. Handles are those of ftl.placement, reclaim units those of ftl.reclaim_unit_blocks.",
                     assumed("none: few drives have it"));
}

InterruptCoalescing NvmeConfig::coalescing() const {
  if (const auto* coalesced = std::get_if<CoalescedInterrupts>(&interrupts))
    return {coalesced->completions, coalesced->time};
  return {};
}

QueuePriorities NvmeConfig::priorities() const {
  return {queue_priorities, {priority_weights[0], priority_weights[1], priority_weights[2]}};
}

NvmeControllerParams controller_params(const NvmeConfig& config) {
  NvmeControllerParams params;
  params.controller.io_queues = static_cast<std::uint16_t>(config.queues);
  params.controller.queue_depth = config.queue_depth;
  params.controller.mdts = config.mdts;
  params.controller.block_size = config.block_size;
  params.firmware_time = config.firmware_time;
  params.firmware_cores = config.firmware_cores;
  params.command_slots = config.command_slots;
  return params;
}

}  // namespace csdsim::nvme
