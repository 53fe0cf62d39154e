// Runs a serving workload.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "csd_model/drive_totals.h"
#include "experiment/serving/serving_workload.h"
#include "experiment/write_samples.h"
#include "ftl/core/write_work.h"
#include "host_runtime/core/serving/carried/served_model.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

struct ServingOutcome {
  host::ServingMeter meter;
  host::TiersUse tiers;
  std::optional<host::FileUse> files;  ///< costs of a tier with a file per block
  SimTime start, end;                  ///< the first request may arrive; the last one has ended
  bool interrupted = false;            ///< it ended before the last request had
  Bytes tier_block;                    ///< in a tier, with padding to whole logical blocks
  std::uint64_t gpu_blocks = 0;
  std::optional<std::uint64_t> host_blocks, drive_blocks;  ///< capacities; nothing: there is no such tier

  // Simulated drives, until their last write has ended.
  bool simulated_drives = false;
  csd_model::DriveTotals totals;  ///< sum over all drives
  ftl::WriteWork writes;
  std::vector<WriteSample> write_samples;  ///< the same work over the seconds since `start`
  std::uint64_t erases = 0;
  nlohmann::ordered_json drive_statistics = nlohmann::ordered_json::array();
  std::uint64_t commands_issued = 0, commands_completed = 0;
  std::optional<nlohmann::ordered_json> rates;  ///< rates that were measured for drives as a table
  /// In runs that carry data: the answers of the service, and those of each request computed alone.
  host::DrawnAnswers answers, cold_answers;

  double seconds() const { return (end - start).seconds(); }
};

/// Serves the requests of the workload, and writes the trace that the options ask for: a track for each request, and
/// what the parts of the drives do. Throws UserError for what only a run can detect.
ServingOutcome run_serving(const scenario::Scenario& scenario, const ServingWorkload& work,
                           const scenario::RunOptions& options);

}  // namespace csdsim::experiment
