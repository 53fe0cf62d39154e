// Sampled runs: which decode steps and layers are simulated, and with which weights the measured costs add up to the
// whole run.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/plan/planner.h"
#include "host_runtime/core/sampling/step_features.h"
#include "host_runtime/core/sampling/step_predictor.h"

namespace csdsim::host {

/// Least number of layers of a simulated step from which the error of omitted layers can be estimated: the first and
/// the last one, which differ from the others, and three between them.
inline constexpr std::uint32_t kJudgedLayers = 5;

/// Least number of measured heads of an attention command from which their error can be estimated.
inline constexpr std::uint32_t kLeastHeads = 8;

/// Places that a sample measures, by what their first step does.
struct SampledPlaces {
  std::uint32_t plain = 0, token_flush = 0, window_flush = 0;
  std::uint32_t total() const { return plain + token_flush + window_flush; }
};

struct SamplingSettings {
  bool off = false;                      ///< simulate every step and layer
  std::uint32_t layers = kJudgedLayers;  ///< layers of a simulated step; at least 2 unless the model has fewer
  /// Layers of the simulated prefill; if less than `layers`, `layers` are simulated. The time per layer is measured on
  /// the second half of them, after the buffers have filled.
  std::uint32_t prefill_layers = 6;
  std::uint32_t steps = 8;  ///< measured places in the run besides the first decode step; at least 2
  /// Places that are added to those of `steps`, one entry each time that a sample went on. The groups of the entries
  /// before stay as they are.
  std::vector<SampledPlaces> further = {};
  std::uint32_t warmup = 1;    ///< steps simulated before each place, to fill queues; at least 1
  std::uint32_t cooldown = 0;  ///< steps simulated after each place, to keep the drives busy; 1 if mini-batches overlap
  /// Layers of the steps of `warmup`, their last ones, and of `cooldown`, their first ones. 0: all that are simulated.
  std::uint32_t warmup_layers = 0;
  std::uint32_t cooldown_layers = 0;
  /// Layers that copies run ahead (Planner::layers_ahead): as many steps follow a measured one as have so many layers,
  /// because their copies begin in it, and twice as many layers come before it, in which the copies settle.
  std::uint32_t ahead = 0;
  /// Heads of an attention command, of all its sequences, that at least show the pace at which it passes over others;
  /// 0: all are simulated.
  std::uint32_t heads = 0;
  FlushSpill spill = {};  ///< steps after a flush that are measured with it, because it drains in the background
  /// Measures the plain step after them, too: where a flush moves K and V, all later steps cost as much more as this
  /// one.
  bool settled = false;
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
  std::uint32_t layers = 1;           ///< simulated layers of these steps, and of the prefill before them
  std::uint32_t warmup_layers = 1;    ///< the last ones of them, which the steps of `warmup` have
  std::uint32_t cooldown_layers = 1;  ///< the first ones of them, which the steps of `cooldown` have
  bool after_prefill = false;
  Stratum stratum = Stratum::plain;  ///< stratum of the first measured step: plain, token_flush or window_flush

  std::uint32_t first_measured() const { return first_step + warmup; }
  std::uint32_t steps() const { return warmup + measured + cooldown; }
  PlanSpan span() const {
    return {after_prefill, first_step, steps(), warmup, warmup_layers, cooldown, cooldown_layers};
  }
  /// The first step that has the layer.
  std::uint32_t first_step_of(std::uint32_t layer) const {
    return layer < layers - warmup_layers ? first_measured() : first_step;
  }
  /// Simulated layers, summed over the steps and the prefill.
  std::uint32_t layer_steps() const {
    return warmup * warmup_layers + (measured + (after_prefill ? 1 : 0)) * layers + cooldown * cooldown_layers;
  }
  /// Simulates `simulated` layers in measured steps, and at most as many as `settings` says in the steps around them.
  void set_layers(std::uint32_t simulated, const SamplingSettings& settings);
};

/// Error of a total from the steps that are not measured.
struct StepsError {
  double relative = 0;  ///< the true error is larger in one run of twenty
  /// Relative variance of the total by the places that cause it: those with no flush, with flushes of token groups, and
  /// of windows.
  double plain = 0, token_flush = 0, window_flush = 0;

  double variance() const { return plain + token_flush + window_flush; }
  double& of(Stratum stratum) {
    switch (stratum) {
      case Stratum::plain:
        return plain;
      case Stratum::after_token_flush:
      case Stratum::token_flush:
        return token_flush;
      case Stratum::after_window_flush:
      case Stratum::window_flush:
        return window_flush;
    }
    throw InternalError("a stratum without a name");
  }
};

/// The sample that the settings describe. How much is simulated is decided in experiment/sampling/sampling_search.h;
/// errors are estimated in host_runtime/core/sampling/estimator.h.
///
/// Groups are disjoint and ascending, so a drive's state only grows. Totals over all decode steps are sums of measured
/// costs with fixed weights (from StepPredictor), scaled to the layers of the model. The first decode step is measured
/// separately. It also waits until the K and V of the prefill have reached the drive; this wait occurs once per run and
/// is not scaled with the number of layers.
class SamplingPlan {
 public:
  /// UserError for settings out of range.
  SamplingPlan(const BatchLengths& workload, std::uint32_t model_layers, const KvGrouping& grouping,
               const SamplingSettings& asked);

  std::uint32_t model_layers() const { return model_layers_; }
  /// The groups to simulate, in order; a single one, for the prefill, if there is no decode step.
  const std::vector<SampledGroup>& groups() const { return groups_; }
  /// Measured decode steps, ascending. The costs passed to the functions below are in this order.
  const std::vector<std::uint32_t>& measured_steps() const { return measured_; }
  /// Simulated share of (steps x layers) of the run; the prefill counts as one step.
  double share() const;
  /// The places, the first step not counted; none where every step is measured.
  SampledPlaces places() const;
  /// True when nothing is extrapolated.
  bool exact() const { return all_steps_ && groups_.front().layers == model_layers_; }

  /// Total of a cost over all decode steps of the run and all layers of the model.
  double decode_total(std::span<const LayeredCost> cost) const;
  /// Error of decode_total() from the steps that are not measured: the standard error from the residuals of the fit, by
  /// stratum, times the quantile of Student's t. Its degrees of freedom are those of the strata together
  /// (Satterthwaite). 0 if all steps are measured.
  StepsError decode_error(std::span<const LayeredCost> cost) const;
  /// Standard deviation of decode_total() if the costs inside the layers have independent errors of these variances, in
  /// their unit squared, by measured step.
  double decode_deviation(std::span<const double> variances) const;
  /// What is simulated: "prefill simulated with 6 of 40 layers; 19 of 1023 decode steps with 5 (11 measured: the
  /// first, and 6 plain, 2 token-flush, 0 window-flush places)", or "prefill and all 29 decode steps simulated, with 3
  /// of 3 layers", or, without decode steps, "prefill: 6 of 40 layers simulated".
  std::string statement() const;

 private:
  struct Weight {
    double scaled = 0;  ///< factor of the cost scaled to all layers
    double once = 0;    ///< factor of the cost scaled to the layers of the first group
  };

  void measure_everything(std::uint32_t layers);
  struct Steps {
    std::size_t first = 0;
    std::size_t end = 0;
  };
  /// Steps whose total is estimated from the same measured steps.
  struct Part {
    Steps basis;  ///< steps whose features the fit knows
    std::vector<MeasuredGroup> groups;
    std::vector<std::size_t> index;      ///< positions in measured_ of the steps of `groups`
    std::vector<double> weights;         ///< weights of these steps in the total of the part
    std::array<double, kStrata> left{};  ///< [stratum] share of the steps of `basis` that are not measured
  };
  void add_parts(std::span<const SampledGroup> used);
  Part part_of(std::span<const SampledGroup> used, Steps wanted, Steps basis) const;
  StepPredictor predictor_of(const Part& part) const;
  double of_all_layers(std::size_t measured, const LayeredCost& cost) const;

  std::vector<StepFeatures> features_;
  std::uint32_t model_layers_ = 0;
  std::vector<std::uint32_t> cost_layers_;  ///< layers of each measured step
  bool all_steps_ = false;
  std::vector<SampledGroup> groups_;
  std::vector<std::uint32_t> measured_;
  std::vector<Weight> weights_;  ///< [measured step]
  std::vector<Part> parts_;
};

}  // namespace csdsim::host
