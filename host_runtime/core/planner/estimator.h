// From the simulated groups of a sampled run to the times of the whole run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "host_runtime/core/planner/executor.h"
#include "host_runtime/core/planner/metrics.h"
#include "host_runtime/core/planner/sampling_plan.h"

namespace csdsim::host {

struct GenerationEstimate {
  GenerationTimes times;
  double relative_error = 0;  ///< estimated, of decode_s; 0 when every step was simulated
  bool error_estimated =
      true;               ///< false where layers were extrapolated and nothing could be left out to see the change
  std::string statement;  ///< what was simulated, and the estimated error
};

/// Feed the executor's report of every group, in order. The prefill scales with its steady time from layer to
/// layer, decode with SamplingPlan's weights.
///
///   GenerationEstimator estimator(plan, workload);
///   for (const SampledGroup& group : plan.groups()) {  // materialise the state before group.first_step, then
///     inputs.span = group.span();
///     inputs.model.layers = group.layers; ... run an Executor ...
///     estimator.add(executor.report());
///   }
///   const GenerationEstimate estimate = estimator.result();
class GenerationEstimator {
 public:
  /// `plan` must outlive the estimator.
  GenerationEstimator(const SamplingPlan& plan, const BatchLengths& workload);

  /// The report of the next group, whose cool-down need not have ended. InternalError if a measured step has not.
  void add(const ExecutionReport& report);
  /// Total over all decode steps and layers of another cost, given at the measured steps (plan.measured_steps()).
  double decode_total(std::span<const LayeredCost> cost) const { return plan_.decode_total(cost); }
  /// InternalError before all groups were added.
  GenerationEstimate result() const;

 private:
  void add_prefill(const ExecutionReport& report);
  static double repeated_share(const StepRecord& step, const PathBreakdown& path);

  const SamplingPlan& plan_;
  GenerationTimes times_;
  std::size_t next_group_ = 0;
  std::array<std::vector<LayeredCost>, kPathParts> part_cost_;
  std::vector<LayeredCost> cost_;
};

}  // namespace csdsim::host
