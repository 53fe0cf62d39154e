// The host's program of a generation run: the groups of a sampling plan, one after another, in simulated time.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <systemc>
#include <vector>

#include "experiment/generation/generation_run.h"
#include "experiment/measure/phase_meter.h"
#include "experiment/memory/kv_format.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/sysc/copy_backend.h"
#include "host_runtime/sysc/drive_block_backend.h"
#include "host_runtime/sysc/drive_kv_backend.h"
#include "host_runtime/sysc/executor_module.h"
#include "host_runtime/sysc/file_backend.h"
#include "host_runtime/sysc/shared_memory.h"
#include "simulation/kernel_call.h"

namespace csdsim::experiment {

/// One SC_THREAD that waits for the drives, materialises what was skipped, and runs each group with an Executor.
class GenerationProgram : public sc_core::sc_module {
 public:
  /// `setup`, `hooks` and `platform` must outlive the program.
  GenerationProgram(const sc_core::sc_module_name& name, const GenerationSetup& setup, const GenerationHooks& hooks,
                    platform::Platform& platform);
  SC_HAS_PROCESS(GenerationProgram);

  /// What a sampled run would not run into, because it holds a few layers only. UserError, before anything is
  /// simulated.
  void check_sampled() const;
  /// Measures the GPU's work of the plan, if times are measured, so that nothing else runs meanwhile. Work that only
  /// the run shows is measured when it comes.
  void measure_gpu_times() const;
  /// After the simulation: times, totals and energy. Throws what stopped the simulation.
  GenerationOutcome outcome();

 private:
  void add_requests(GenerationOutcome& out) const;
  void add_placement_error(host::SamplingError& error, double decode_pages) const;
  double prefill_error() const;
  double planes_of_layers() const;
  std::string heads_statement() const;
  bool open_ended() const;
  std::uint32_t most_layers() const;
  host::DriveKvBackend::Shape shape() const;

  host::OperationBackend& host_backend();
  void fail(const std::string& message);
  void main_thread();
  void wait_for(const std::function<void(std::function<void()>)>& start);
  void run();
  void run_group(const host::SampledGroup& group);
  bool measured_before(const host::SampledGroup& group) const;
  std::shared_ptr<const MeasuredGroups> measured_groups() const;
  void drain(const std::function<void()>& done);
  void drain_drives(const std::function<void()>& done);
  void materialise(const host::SampledGroup& group, const host::Planner& planner);
  void add_files();
  void add_blocks();
  void add_features();
  void materialise_kv(std::uint32_t drive, SequenceId sequence, LayerId layer, std::uint32_t tokens);
  host::PlannerInputs inputs_of(const host::SampledGroup& group) const;
  std::unique_ptr<host::Planner> plan_of(const host::SampledGroup& group) const;
  std::unique_ptr<host::Planner> plan_after(std::uint32_t steps, std::uint32_t layers) const;
  void place_left_out(std::uint32_t steps);
  void observe(const host::OperationRecord& record);

  const GenerationSetup& setup_;
  const GenerationHooks& hooks_;
  platform::Platform& platform_;
  KvFormat format_;
  host::SamplingPlan plan_;
  host::GenerationEstimator estimator_;
  PhaseMeter meter_;
  RequestMeter requests_;
  std::unique_ptr<host::Planner> planner_;  ///< plan of the group that runs, or has run last
  SimTime start_;                           ///< start of the first group
  host::GpuBackend gpu_;
  std::optional<host::HostBackend> host_;
  host::ExecutorModule executor_;
  host::CopyBackend link_;
  std::optional<host::SharedMemory> host_memory_;  ///< where copies and the host's cores can ask for more than it has
  std::optional<host::SharedMemoryBackend> shared_host_;
  host::DriveCommands commands_;
  host::DriveKvBackend drives_;
  host::DriveBlockBackend blocks_;
  host::RunFeatures modelled_;                      ///< features of runs without data
  const host::RunFeatures* features_ = &modelled_;  ///< those, or the data's
  std::vector<host::FileTable> file_tables_;        ///< [drive]
  std::optional<host::FileBackend> files_;
  host::Router router_;
  sc_core::sc_event continue_;
  KernelCall resume_{[this] { continue_.notify(sc_core::SC_ZERO_TIME); }};
  KernelCall stop_{[] { sc_core::sc_stop(); }};

  const host::SampledGroup* group_ = nullptr;  ///< that runs
  std::size_t steps_ = 0;                      ///< that have ended, the prefill included
  bool finished_ = false;
  bool cut_ = false;  ///< by GenerationSetup::most_prefill_error
  std::exception_ptr failure_;
};

}  // namespace csdsim::experiment
