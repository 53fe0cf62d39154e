// Work of the prefill and of the measured decode steps, read off the platform as operations end.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "csd_model/passed_heads.h"
#include "experiment/generation/phase_totals.h"
#include "host_runtime/core/planner/executor.h"
#include "host_runtime/core/planner/flash_neurons.h"
#include "host_runtime/core/planner/pooled_kv.h"
#include "host_runtime/core/planner/processor_backends.h"
#include "host_runtime/core/planner/sampling_plan.h"

namespace csdsim::experiment {

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

  /// Whose loaded neurons count; null if there are none. They must outlive the meter.
  void set_neurons(const host::FlashNeurons* neurons) { neurons_ = neurons; }
  /// Likewise whose tokens count.
  void set_pools(const host::PooledKv* pools) { pools_ = pools; }
  /// Whose work between operations counts as work of the GPUs.
  void set_gpu(const host::GpuBackend& gpu) { gpu_ = &gpu; }
  /// The simulation of `group`, which must outlive it, begins now.
  void begin(const host::SampledGroup& group);
  /// True when the operation ended a step.
  bool observe(const host::OperationRecord& record);

  /// Scaled to all layers. Its seconds are those of the simulated layers, scaled likewise.
  const PhaseTotals& prefill() const { return prefill_; }
  /// Scaled to all layers and steps; its seconds are 0 unless the run is open-ended.
  PhaseTotals decode() const;
  /// Estimated relative error of the weights that decode() says were read, as SamplingError: of the steps between the
  /// measured ones, and of the layers beyond the simulated ones, which read as differently as these do. 0 where nothing
  /// is extrapolated.
  double flash_bytes_error() const;
  /// 0 where all heads are simulated.
  HeadsError heads_error() const;
  /// Time in which no request ran.
  double idle_s() const { return idle_s_; }

 private:
  struct Interval {
    SimTime start, end;
  };
  PhaseTotals totals();
  csd_model::PassedHeadsError passed_heads();
  void begins(SimTime step);
  bool measured(const host::OpTag& tag) const;
  void observe_flash(const host::OperationRecord& record);
  std::vector<host::LayeredCost> costs_of(double PhaseTotals::*field) const;
  std::vector<host::LayeredCost> costs_of_time(std::size_t index) const;
  void mark_layer(const host::OperationRecord& record);
  void end_prefill(const PhaseTotals& now);

  platform::Platform& platform_;
  const host::SamplingPlan& plan_;
  bool open_ended_;
  const host::SampledGroup* group_ = nullptr;
  std::array<SimTime, host::kResourceKinds> busy_{};    ///< processors and links: sum over the operations
  std::array<SimTime, host::kResourceKinds> waited_{};  ///< of operations, for their resource
  Bytes gpu_link_;
  SimTime flash_time_;                 ///< time with a read of weights from blocks, or with a network in a drive
  std::vector<Interval> flash_reads_;  ///< of such work, without gaps between them joined
  SimTime memory_time_;                ///< records deleted and inserted
  Bytes flash_bytes_;
  std::map<std::uint32_t, double> layer_flash_bytes_;  ///< by layer: read in measured steps
  const host::FlashNeurons* neurons_ = nullptr;
  const host::PooledKv* pools_ = nullptr;
  const host::GpuBackend* gpu_ = nullptr;
  SimTime gpu_outside_;  ///< of the GPU's time: embedding and sampling
  SimTime gpu_outside_before_;
  PhaseTotals before_;
  csd_model::PassedHeadsError passed_before_;
  std::vector<csd_model::PassedHeadsError> passed_;  ///< [measured step]
  PhaseTotals prefill_;
  PhaseTotals decode_;
  double idle_s_ = 0;
  bool between_steps_ = true;
  std::map<std::uint32_t, PhaseTotals> layer_marks_;  ///< by layer: when its K and V were where they stay
  bool marks_files_ = false;                          ///< when they were written to files
  std::vector<PhaseTotals> measured_;                 ///< [measured step]
  std::vector<double> gpu_outside_layers_;            ///< [measured step], seconds
};

}  // namespace csdsim::experiment
