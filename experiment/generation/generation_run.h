// A generation run on the simulated platform: whole, or sampled.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "csd_model/energy.h"
#include "experiment/measure/phase_meter.h"
#include "experiment/measure/phase_totals.h"
#include "experiment/measure/power_outcome.h"
#include "experiment/measure/request_meter.h"
#include "ftl/kv/kv_ftl_stats.h"
#include "host_runtime/core/machine/file_config.h"
#include "host_runtime/core/machine/file_totals.h"
#include "host_runtime/core/machine/gpu_model.h"
#include "host_runtime/core/machine/processor_backends.h"
#include "host_runtime/core/plan/lost_rows.h"
#include "host_runtime/core/plan/metrics.h"
#include "host_runtime/core/plan/system.h"
#include "host_runtime/core/sampling/estimator.h"
#include "host_runtime/core/sampling/sampling_plan.h"
#include "nvme_if/core/nvme_config.h"
#include "nvme_if/core/shared_link.h"
#include "platform/platform_params.h"

namespace csdsim::host {
class OperationData;
}

namespace csdsim::platform {
class Platform;
}

namespace csdsim::experiment {

/// A run with at most so many planned page operations is simulated whole; it takes seconds.
inline constexpr double kWholeRun = 5e7;

/// What has been measured of the groups of a sample, by their first step: times and work of the same groups.
struct MeasuredGroups {
  std::map<std::uint32_t, host::GroupTimes> times;
  std::map<std::uint32_t, GroupWork> work;
};

struct GenerationSetup {
  platform::PlatformParams platform;
  host::GpuConfig gpu;
  std::shared_ptr<host::OperatorTable> gpu_times;  ///< null: the times are modelled
  host::HostParameters host;                       ///< no cores: plans give the host no operations
  host::LinkModel gpu_link;
  std::optional<host::FileIoParams> file;  ///< if plans have file operations; page cache of the whole model
  std::shared_ptr<const host::OffloadSystem> system;
  host::PlannerInputs plan;           ///< span and drives are set by the run
  host::SamplingSettings sampling;    ///< with asked_error: of the first attempt
  std::optional<double> asked_error;  ///< relative; the sample grows until its estimated error is within it
  bool automatic_heads = false;       ///< with asked_error: long samples pass over heads, whatever sampling.heads says
  /// A sample ends after its first group, without a result, if the estimated error of the prefill is larger.
  std::optional<double> most_prefill_error;
  /// Groups of the sample that another run has measured, with as many layers and heads: they are not simulated again.
  std::shared_ptr<const MeasuredGroups> measured;
  std::string why_whole;                ///< why everything is simulated where nobody asked for it; empty otherwise
  host::OperationData* data = nullptr;  ///< carried runs
  nvme::Granularity granularity = nvme::Granularity::layer_mini_batch;
  host::ModelledSources sources;       ///< sources of runs without data; the run sets rows
  std::uint16_t queues_of_others = 0;  ///< last I/O queues of each drive, which the generation leaves free
  /// True if the drives keep K component-major too. Unset: what the method reads; dense attention does without.
  std::optional<bool> component_major;
  host::LostKv lost_kv = host::LostKv::stop;  ///< what happens with K and V that a drive cannot read back
};

/// What is measured of requests that have their own lengths.
struct RequestOutcome {
  std::vector<host::Request> requests;  ///< in the order of the workload
  SimTime start;                        ///< start of the run
  std::uint64_t most_tokens = 0;        ///< in the cache at a time
  double mean_tokens = 0;               ///< in the cache, over the time of the run
  bool served = false;                  ///< they arrive at their own times
  double idle_s = 0;                    ///< time in which none ran
};

struct GenerationOutcome {
  bool cut = false;  ///< by most_prefill_error: only error.prefill and what was simulated are known
  host::GenerationTimes times;
  host::SamplingError error;
  std::string statement;                           ///< what was simulated
  std::shared_ptr<const MeasuredGroups> measured;  ///< all groups of a sample
  std::vector<host::RunFeatures::Value> features;  ///< metrics of the features
  std::optional<RequestOutcome> requests;
  PhaseTotals prefill;        ///< scaled to all layers
  PhaseTotals decode;         ///< scaled to all layers and steps
  csd_model::DriveWork work;  ///< work of prefill and decode; what drains after the last token is not part of them
  SimTime simulated;          ///< end of the simulation
  std::uint64_t simulated_page_ops = 0;
  std::uint64_t integrity_errors = 0;
  std::vector<std::string> integrity_messages;
  std::optional<PowerOutcome> power;   ///< where the power of a drive failed
  Bytes dram_peak;                     ///< largest use of controller DRAM, in the fullest drive; of the simulated part
  ftl::KvFtlStats kv;                  ///< counts of the KV namespaces; likewise
  std::uint64_t grown_bad_blocks = 0;  ///< blocks that went bad in use, in both namespaces; likewise
  std::uint64_t wear_erases = 0;       ///< erases by static wear levelling, in block namespaces; likewise
  std::uint64_t requests_issued = 0;
  std::uint64_t requests_completed = 0;
  nlohmann::ordered_json drive_statistics;    ///< [drive], of what was simulated
  std::map<host::Place, Bytes> memory_peaks;  ///< most that the tensors of the plan take; of all layers and steps
  std::optional<host::FileTotals> files;      ///< likewise, if the plan has file operations
  nlohmann::ordered_json shared_links;        ///< likewise: use of each link that drives and GPUs share
};

struct GenerationHooks {
  std::function<void(const host::OperationRecord&)> operation;        ///< every operation that ended
  std::function<void(std::size_t done, std::size_t total)> progress;  ///< steps; requests if they arrive
  std::function<void(const std::string&)> notice;                     ///< one line for the user, before a long run
  std::optional<std::filesystem::path> waveforms;                     ///< VCD file, see PlatformParams
  nvme::SharedLink::Observer shared_link;                 ///< busy periods of shared links that may hold transfers up
  std::function<void(platform::Platform&)> before_start;  ///< after construction
  /// After the last step: the simulation goes on until what it is given is called.
  std::function<void(std::function<void()>)> after_last;
  /// The simulation is over or has failed, its modules are still there; must not throw.
  std::function<void(platform::Platform&)> before_end;
};

/// Builds the platform in a context of its own, runs, and tears it down. UserError when a drive refuses a command or
/// the scenario does not fit it.
GenerationOutcome run_generation(const GenerationSetup& setup, const GenerationHooks& hooks = {});

}  // namespace csdsim::experiment
