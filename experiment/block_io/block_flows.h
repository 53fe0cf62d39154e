// Several flows of block commands at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/param.h"
#include "base/quantity.h"
#include "scenario/check.h"

namespace csdsim::experiment {

enum class Pattern : std::uint8_t;
struct BlockIoWorkload;

/// Lists with an item for each flow. If `placements` is empty, writes carry no placement identifier. If another list is
/// empty, each flow has the workload's own value; for the parts of the namespace, flows have equal parts.
struct FlowsConfig {
  static constexpr std::size_t kMost = 8;
  std::vector<Pattern> patterns;
  std::vector<Bytes> request_sizes;
  std::vector<std::uint32_t> queue_depths;
  std::vector<SimTime> interarrivals;
  std::vector<Ratio> read_fractions;
  std::vector<std::uint32_t> shares;
  std::vector<std::uint32_t> placements;

  std::size_t count() const { return patterns.size(); }
};

void describe(ParamVisitor& v, FlowsConfig& c);

/// The flows of `work`, each as a workload of its own; working_set is the flow's part.
std::vector<BlockIoWorkload> workloads_of_flows(const BlockIoWorkload& work);
/// Part `i` of `whole`, by the shares.
Bytes part_of_flow(const FlowsConfig& flows, std::size_t i, Bytes whole);
/// What a workload of flows asks of the scenario.
void check_flows(scenario::Checker& c, const BlockIoWorkload& work);

}  // namespace csdsim::experiment
