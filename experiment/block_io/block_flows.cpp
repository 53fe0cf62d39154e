#include "experiment/block_io/block_flows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "experiment/block_io/block_workload.h"
#include "experiment/block_io/check_block_workload.h"
#include "experiment/block_io/check_blocks.h"
#include "experiment/block_io/drive_notes.h"

namespace csdsim::experiment {

void describe(ParamVisitor& v, FlowsConfig& c) {
  v.list("patterns", c.patterns, {2, FlowsConfig::kMost}, "Access pattern of each flow.",
         assumed("none: the number of flows follows from it"));
  v.list("request_sizes", c.request_sizes, {0, FlowsConfig::kMost},
         "Bytes of a request of each flow; empty: workload.request_size.", assumed("flows of one size"));
  v.list("queue_depths", c.queue_depths, {0, FlowsConfig::kMost},
         "Closed loops: requests in flight of each flow; empty: workload.queue_depth.", assumed("flows of one depth"));
  v.list("interarrivals", c.interarrivals, {0, FlowsConfig::kMost},
         "Open loops: mean time between requests of each flow; empty: workload.arrival.interarrival.",
         assumed("flows of one rate"));
  v.list("read_fractions", c.read_fractions, {0, FlowsConfig::kMost},
         "Share of reads of each flow, which says something about mixed patterns only; empty: half.",
         assumed("what the pattern says"));
  v.list("shares", c.shares, {0, FlowsConfig::kMost},
         "Relative sizes of the parts of the working set, one for each flow; empty: equal parts.",
         assumed("equal parts"));
  v.list("placements", c.placements, {0, FlowsConfig::kMost},
         "Placement identifier that the writes of each flow carry (platform.device.nvme.fdp); empty: none.",
         assumed("most hosts do not say which data belong together"));
}

std::vector<BlockIoWorkload> workloads_of_flows(const BlockIoWorkload& work) {
  std::vector<BlockIoWorkload> flows(work.flows->count(), work);
  for (std::size_t i = 0; i < flows.size(); ++i) {
    BlockIoWorkload& flow = flows[i];
    flow.pattern = work.flows->patterns[i];
    if (!work.flows->request_sizes.empty()) flow.request_size = work.flows->request_sizes[i];
    if (!work.flows->queue_depths.empty()) flow.queue_depth = work.flows->queue_depths[i];
    if (auto* open = std::get_if<OpenArrival>(&flow.arrival); open != nullptr && !work.flows->interarrivals.empty())
      open->interarrival = work.flows->interarrivals[i];
    if (!work.flows->read_fractions.empty()) flow.read_fraction = work.flows->read_fractions[i];
    flow.flows.reset();
  }
  return flows;
}

Bytes part_of_flow(const FlowsConfig& flows, std::size_t i, Bytes whole) {
  const auto& shares = flows.shares;
  const std::uint64_t sum = shares.empty() ? flows.count() : std::accumulate(shares.begin(), shares.end(), 0ULL);
  const std::uint64_t share = shares.empty() ? 1 : shares[i];
  return Bytes{static_cast<std::uint64_t>(static_cast<unsigned __int128>(whole.value) * share / sum)};
}

void check_flows(scenario::Checker& c, const BlockIoWorkload& work) {
  const FlowsConfig& flows = *work.flows;
  const nvme::NvmeConfig& nvme = c.scenario().platform.device.nvme;
  constexpr std::string_view section = "workload.flows";
  constexpr std::string_view kBlock = "platform.device.nvme.block_size";
  for (const std::string_view unused :
       {"workload.pattern", "workload.request_sizes", "workload.request_weights", "workload.read_fraction",
        "workload.trim_fraction", "workload.streams", "workload.queues", "workload.queue_assignment"})
    c.refuse_unused(unused, section, "flows have their own, each in a queue of its own");
  if (flows.count() == 0)
    return c.error_at(section, "workload.flows: no flow: give patterns, one for each of 2 to 8 flows");
  if (work.open()) {
    constexpr std::string_view why = "an open loop does not limit the requests in flight";
    c.refuse_unused("workload.queue_depth", "workload.arrival.kind", std::string(why));
    c.refuse_unused("workload.flows.queue_depths", "workload.arrival.kind", std::string(why));
    if (!flows.interarrivals.empty())
      c.refuse_unused("workload.arrival.interarrival", "workload.flows.interarrivals", "each flow has its own");
    c.require(std::ranges::all_of(flows.interarrivals, [](SimTime t) { return t.ps > 0; }),
              {"workload.flows.interarrivals"}, "workload.flows.interarrivals: a flow has no time between requests");
  } else {
    c.refuse_unused("workload.flows.interarrivals", "workload.arrival.kind",
                    "a closed loop sends a request when another completes");
  }
  const auto same_length = [&](std::string_view name, std::size_t length) {
    const std::string path = fmt::format("workload.flows.{}", name);
    c.require(length == 0 || length == flows.count(), {path, "workload.flows.patterns"},
              fmt::format("{}: {} items for {} patterns", path, length, flows.count()));
    return length == 0 || length == flows.count();
  };
  bool complete = same_length("request_sizes", flows.request_sizes.size());
  complete &= same_length("queue_depths", flows.queue_depths.size());
  complete &= same_length("interarrivals", flows.interarrivals.size());
  complete &= same_length("read_fractions", flows.read_fractions.size());
  complete &= same_length("shares", flows.shares.size());
  if (same_length("placements", flows.placements.size()))
    check_placements(c, flows.placements, "workload.flows.placements");
  c.require(std::ranges::all_of(flows.shares, [](std::uint32_t share) { return share > 0; }), {"workload.flows.shares"},
            "workload.flows.shares: a flow has no part of the working set");
  c.require(flows.count() <= nvme.queues, {"workload.flows.patterns", "platform.device.nvme.queues"},
            fmt::format("workload.flows.patterns: {} flows for {} queues: each needs one", flows.count(), nvme.queues));
  if (!complete || std::ranges::count(flows.shares, 0U) > 0) return;
  note_drive_traps(c, traffic_of(work));
  const std::optional<Bytes> set = working_set_if_any(c.scenario(), work.common);
  if (!set) return;
  const std::vector<BlockIoWorkload> all = workloads_of_flows(work);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string_view sizes =
        flows.request_sizes.empty() ? "workload.request_size" : "workload.flows.request_sizes";
    const std::string_view depths = flows.queue_depths.empty() ? "workload.queue_depth" : "workload.flows.queue_depths";
    const Bytes size = all[i].request_size, part = part_of_flow(flows, i, *set);
    c.require(size.value > 0 && size.value % nvme.block_size.value == 0, {sizes, kBlock},
              fmt::format("{}: {} of flow {} is not a multiple of the logical block of {}", sizes,
                          format_quantity(size), i + 1, format_quantity(nvme.block_size)));
    c.require(size + size <= part, {"workload.working_set", "workload.flows.shares", sizes},
              fmt::format("workload.working_set: {} bytes for flow {} do not hold two requests of {}", part.value,
                          i + 1, format_quantity(size)));
    c.require(work.open() || (all[i].queue_depth >= 1 && all[i].queue_depth < nvme.queue_depth),
              {depths, "platform.device.nvme.queue_depth"},
              fmt::format("{}: {} requests of flow {} do not fit into its queue of {} entries ({} commands)", depths,
                          all[i].queue_depth, i + 1, nvme.queue_depth, nvme.queue_depth - 1));
    if (!flows.read_fractions.empty() && !all[i].mixed())
      c.require(*all[i].read_fraction == all[i].reads(), {"workload.flows.read_fractions", "workload.flows.patterns"},
                fmt::format("workload.flows.read_fractions: {} disagrees with pattern {} of flow {}",
                            format_quantity(*all[i].read_fraction), name_of(all[i].pattern), i + 1));
  }
}

}  // namespace csdsim::experiment
