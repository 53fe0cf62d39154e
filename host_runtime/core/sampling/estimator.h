// From the simulated groups of a sampled run to the times of the whole run.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "host_runtime/core/plan/executor.h"
#include "host_runtime/core/plan/metrics.h"
#include "host_runtime/core/sampling/sampling_plan.h"

namespace csdsim::host {

/// Estimated relative errors of a sampled run, each meant to be exceeded in about one run of twenty; 0 where nothing is
/// extrapolated.
struct SamplingError {
  double steps = 0;           ///< error of decode_s by steps between the measured ones, without the noise of `heads`
  double layers = 0;          ///< error of decode_s by layers that are not simulated; infinite below kJudgedLayers
  double heads = 0;           ///< error of decode_s by heads that attention commands pass over
  double drift = 0;           ///< part of `heads` that more steps do not make smaller
  double prefill = 0;         ///< error of ttft_s by layers that are not simulated
  StepsError by_places = {};  ///< `steps` by the places that cause it, with the noise of `heads`

  /// Adds the error of heads that are passed over. `noise` is independent from step to step: the residuals of `steps`
  /// contain it already, so that it is subtracted there. `same` may be the same in all steps.
  void add_heads(double noise, double same) {
    steps = std::max(0.0, steps - noise);
    heads += noise + same;
    drift += same;
  }
  double decode() const { return steps + layers + heads; }
  double largest() const { return std::max(decode(), prefill); }
};

/// "estimated error (95 % confidence): time to the first token 0.31 %, decode 0.53 % (0.40 from steps, 0.12 from
/// layers, 0.01 from heads)"; heads only where some are passed over.
std::string to_string(const SamplingError& error);

struct GenerationEstimate {
  GenerationTimes times;
  SamplingError error;
};

/// What a measured step took, by the parts of its path.
struct StepTimes {
  LayeredCost cost;
  std::array<LayeredCost, kPathParts> parts;
  std::array<LayeredCost, kPathResources> resources;
  double layers_error = 0;  ///< relative
};

/// What the simulation of a group says about the times of the whole run.
struct GroupTimes {
  double ttft_s = 0, prefill_error_s = 0;  ///< times of the group after the prefill
  std::vector<StepTimes> steps;            ///< the measured ones
};

/// Feed the executor's report of every group, in order. The prefill scales with its steady time from layer to
/// layer, decode with SamplingPlan's weights.
///
/// The first and the last layers of a step differ from those between: the pipeline of mini-batches fills and drains,
/// and nothing follows the last layer. Therefore the time of each layer that is not simulated is the mean time of the
/// layers between them. Its error is estimated from how unevenly these layers end.
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
  /// `work_s`, by measured step: what its simulated layers keep the busiest resource working for. Layers that are not
  /// simulated take no less, although few of them may: buffers hide what falls behind. Empty: unknown.
  void add(const ExecutionReport& report, std::span<const double> work_s = {});
  /// What another simulation has found of the next group, with the same number of layers.
  void add(GroupTimes group);
  /// By group of the plan.
  const std::vector<GroupTimes>& groups() const { return groups_; }
  /// Total over all decode steps and layers of another cost, given at the measured steps (plan.measured_steps()).
  double decode_total(std::span<const LayeredCost> cost) const { return plan_.decode_total(cost); }
  /// The time to the first token and its estimated relative error, once the first group was added.
  double ttft_s() const { return groups_.front().ttft_s; }
  double prefill_error() const { return groups_.front().prefill_error_s / groups_.front().ttft_s; }
  /// InternalError before all groups were added.
  GenerationEstimate result() const;

 private:
  void add_prefill(const ExecutionReport& report, GroupTimes& group) const;
  StepTimes times_of(const StepRecord& step, const PathBreakdown& path, double work_s) const;
  /// Costs of all measured steps.
  template <class Read>
  std::vector<LayeredCost> costs(Read read) const;
  SamplingError error() const;

  const SamplingPlan& plan_;
  GenerationTimes times_;
  std::vector<GroupTimes> groups_;
};

}  // namespace csdsim::host
