// Job files of fio as scenarios.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace csdsim::experiment {

/// The end of the name of a job file.
inline constexpr std::string_view kFioJobs = ".fio";

struct FioScenario {
  std::string text;                ///< a scenario without a platform, as JSON
  std::vector<std::string> notes;  ///< "FILE: note: ...", for the user
};

/// The block commands of a job file: one job with its clones, or jobs side by side as flows. `file` is for messages.
/// Throws UserError with line and job for what cannot be read or simulated, such as jobs that wait for others.
FioScenario scenario_of_fio_jobs(std::string_view text, const std::string& file);

}  // namespace csdsim::experiment
