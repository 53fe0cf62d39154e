// Sampled runs: which decode steps and how many layers to simulate, and what each measured step stands for.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "host_runtime/core/planner/planner.h"
#include "host_runtime/core/planner/step_features.h"
#include "host_runtime/core/planner/step_predictor.h"

namespace csdsim::host {

/// Fewest layers of a simulated step that show their own error: two at the ends, which differ, and three between them.
inline constexpr std::uint32_t kJudgedLayers = 5;

struct SamplingSettings {
  bool off = false;                      ///< simulate every step and layer
  std::uint32_t layers = kJudgedLayers;  ///< layers of a simulated step; at least 2 unless the model has fewer
  /// Layers of the simulated prefill, of which the second half shows the steady pace; `layers` if that is more.
  std::uint32_t prefill_layers = 6;
  std::uint32_t steps = 8;     ///< places of the run that are measured, at least 2, beside the first decode step
  std::uint32_t warmup = 1;    ///< steps simulated before each, to fill queues; at least 1
  std::uint32_t cooldown = 0;  ///< steps after each, to keep the drives loaded; 1 where mini-batches overlap
  FlushSpill spill = {};       ///< steps after a flush that are measured with it: it drains in the background
};

/// Cost of a measured step with the simulated number of layers, in any unit (seconds, bytes, page operations): the
/// part inside the layers and the part outside.
struct LayeredCost {
  double layered = 0;
  double fixed = 0;
};

/// Consecutive decode steps to simulate: `warmup` unmeasured ones from `first_step` on, `measured` ones, then
/// `cooldown` more. The state before `first_step` is materialised, except for the first group, which follows the
/// simulated prefill.
struct SampledGroup {
  std::uint32_t first_step = 0;
  std::uint32_t warmup = 0;
  std::uint32_t measured = 0;
  std::uint32_t cooldown = 0;
  std::uint32_t layers = 1;  ///< layers that these steps, and the prefill before them, have
  bool after_prefill = false;
  Stratum stratum = Stratum::plain;  ///< of the first measured step: plain, token_flush or window_flush

  std::uint32_t first_measured() const { return first_step + warmup; }
  std::uint32_t steps() const { return warmup + measured + cooldown; }
  PlanSpan span() const { return {after_prefill, first_step, steps()}; }
};

/// The groups are disjoint and ascending, so a drive's state only ever grows. Totals over all decode steps are sums of
/// measured costs with fixed weights (from StepPredictor), scaled to the layers of the model. The first decode step
/// is measured for itself: it pays once, whatever the number of layers, for K and V of the prefill that are still on
/// their way.
class SamplingPlan {
 public:
  /// UserError for settings out of range.
  SamplingPlan(const BatchLengths& workload, std::uint32_t model_layers, const KvGrouping& grouping,
               const SamplingSettings& settings);

  std::uint32_t model_layers() const { return model_layers_; }
  /// The runs to simulate, in order. One for the prefill alone if there is no decode step.
  const std::vector<SampledGroup>& groups() const { return groups_; }
  /// Measured decode steps, ascending: the order of the costs below.
  const std::vector<std::uint32_t>& measured_steps() const { return measured_; }
  /// Simulated part of the run's steps times layers, the prefill counted as a step.
  double share() const;
  /// True when nothing is extrapolated.
  bool exact() const { return all_steps_ && groups_.front().layers == model_layers_; }

  /// Total of a cost over all decode steps of the run and all layers of the model.
  double decode_total(std::span<const LayeredCost> cost) const { return apply(weights_, cost); }
  /// Estimated relative error of decode_total(): two standard errors of the jackknife, stratified: in each stratum the
  /// groups are left out in turn. 0 if nothing is extrapolated over steps.
  double decode_error(std::span<const LayeredCost> cost) const;
  /// "decode: 21 of 1023 steps (...) and 2 of 40 layers simulated".
  std::string statement() const;

 private:
  struct Weight {
    double scaled = 0;  ///< times the cost scaled to all layers
    double once = 0;    ///< times the cost scaled to the layers of the first group
  };
  using Weights = std::vector<Weight>;

  void measure_everything(std::uint32_t layers);
  void leave_out(std::span<const SampledGroup> used);
  Weights predictor_weights(std::span<const SampledGroup> used) const;
  double apply(const Weights& weights, std::span<const LayeredCost> cost) const;

  std::vector<StepFeatures> features_;
  std::uint32_t model_layers_ = 0;
  std::vector<std::uint32_t> cost_layers_;  ///< layers of each measured step
  bool all_steps_ = false;
  std::vector<SampledGroup> groups_;
  std::vector<std::uint32_t> measured_;
  Weights weights_;
  std::array<std::vector<Weights>, kStrata> left_out_;  ///< [stratum] without each of its groups
};

}  // namespace csdsim::host
