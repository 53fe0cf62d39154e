// Work of the prefill and of the measured decode steps, read off the platform as operations end.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "csd_model/passed_heads.h"
#include "experiment/measure/phase_totals.h"
#include "host_runtime/core/machine/processor_backends.h"
#include "host_runtime/core/plan/executor.h"
#include "host_runtime/core/plan/run_feature.h"
#include "host_runtime/core/sampling/sampling_plan.h"

namespace csdsim::experiment {

/// Work of a measured decode step.
struct StepTotals {
  PhaseTotals totals;
  double gpu_outside_layers_s = 0;
  csd_model::PassedHeadsError passed;
};

/// Busy time by host::ResourceKind.
using BusyTimes = std::array<SimTime, host::kResourceKinds>;

/// What the simulation of a group of a sampling plan says about the work of the whole run.
struct GroupWork {
  PhaseTotals prefill;  ///< work of the group after the prefill; scaled to all layers
  /// Busy time for the simulated layers of the prefill, which copies may end after it.
  BusyTimes prefill_layers{};
  std::vector<BusyTimes> step_layers;  ///< likewise for the layers of each measured step, by the step of the operations
  std::vector<StepTotals> steps;       ///< the measured ones
};

/// Feed every operation that ends, group by group of a sampling plan. Where only the run itself shows how many steps
/// there are, because requests arrive or drafts are verified, there is one group, and the phases are the sums of all
/// prefill and all decode steps.
class PhaseMeter {
 public:
  /// `platform` and `plan` must outlive the meter. `open_ended`: only the run shows how many steps there are.
  PhaseMeter(platform::Platform& platform, const host::SamplingPlan& plan, bool open_ended)
      : platform_(platform), plan_(plan), open_ended_(open_ended) {}

  /// Estimated error of decode() in seconds, because attention commands pass over heads.
  struct HeadsError {
    double noise_s = 0;  ///< two standard errors; independent from command to command
    double drift_s = 0;  ///< what all commands may have in common
  };

  /// The features of the run, which must outlive the meter.
  void set_features(const host::RunFeatures& features) { features_ = &features; }
  /// Whose work between operations counts as work of the GPUs.
  void set_gpu(const host::GpuBackend& gpu) { gpu_ = &gpu; }
  /// The simulation of `group`, which must outlive it, begins now.
  void begin(const host::SampledGroup& group);
  /// What another simulation has found of the next group.
  void add(GroupWork group) { groups_.push_back(std::move(group)); }
  /// By group of the plan.
  const std::vector<GroupWork>& groups() const { return groups_; }
  /// True when the operation ended a step.
  bool observe(const host::OperationRecord& record);

  /// Scaled to all layers. Its seconds are those of the simulated layers, scaled likewise.
  const PhaseTotals& prefill() const { return open_ended_ ? prefill_ : groups_.front().prefill; }
  /// The longest time for which a processor or a link works on all layers of the prefill, also after its end; once the
  /// first group has run. `gpus`: number of GPUs.
  double prefill_work_s(double gpus) const;
  /// By measured step of the group that has run last: the longest time for which a processor or a link works on the
  /// simulated layers of the step, also before it begins.
  std::vector<double> step_work_s(double gpus) const;
  /// Scaled to all layers and steps; its seconds are 0 unless the run is open-ended.
  PhaseTotals decode() const;
  /// Estimated relative error of a count of features in decode(), as SamplingError: of the steps between the measured
  /// ones. 0 where nothing is extrapolated.
  double feature_error(std::size_t count) const;
  /// 0 where all heads are simulated.
  HeadsError heads_error() const;
  /// Time in which no request ran.
  double idle_s() const { return idle_s_; }

 private:
  PhaseTotals totals();
  csd_model::PassedHeadsError passed_heads();
  void begins(SimTime step);
  bool measured(const host::OpTag& tag) const;
  /// `read`: of a measured step.
  template <class Read>
  std::vector<host::LayeredCost> costs_of(Read read, bool of_gpu = false) const;
  void mark_layer(const host::OperationRecord& record);
  void end_prefill(const PhaseTotals& now);

  platform::Platform& platform_;
  const host::SamplingPlan& plan_;
  bool open_ended_;
  const host::SampledGroup* group_ = nullptr;
  std::array<SimTime, host::kResourceKinds> busy_{};    ///< processors and links: sum over the operations
  std::array<SimTime, host::kResourceKinds> waited_{};  ///< time that operations waited for their resource
  Bytes gpu_link_;
  const host::RunFeatures* features_ = nullptr;
  const host::GpuBackend* gpu_ = nullptr;
  SimTime gpu_outside_;  ///< time of the GPU outside the layers: embedding and sampling
  SimTime gpu_outside_before_;
  PhaseTotals before_;
  csd_model::PassedHeadsError passed_before_;
  PhaseTotals prefill_, decode_;  ///< totals of an open-ended run
  double idle_s_ = 0;
  bool between_steps_ = true;
  std::map<std::uint32_t, PhaseTotals> layer_marks_;  ///< by layer: when its K and V were where they stay
  bool marks_files_ = false;                          ///< when they were written to files
  std::vector<GroupWork> groups_;
};

}  // namespace csdsim::experiment
