// Runs a checked scenario and makes its result document.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/generation/processor.h"
#include "host_runtime/core/model_config.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

struct RunOptions {
  std::optional<std::filesystem::path> trace;  ///< Chrome trace of the run's operations
  /// One prompt in the place of the workload's, as text or as token ids.
  std::optional<std::string> prompt_text;
  std::optional<std::vector<host::TokenId>> prompt_tokens;
  bool attention_on_host = false;        ///< carried runs: no drive; the result has no timing
  Processor processor = Processor::cpu;  ///< carried runs: where everything but the offloaded attention is computed
  /// Called now and then: what is being done, how far it is, of how much.
  std::function<void(std::string_view what, std::uint64_t done, std::uint64_t total)> progress;
};

/// What DIR/result.json holds, and whether the run found itself correct.
struct RunResult {
  nlohmann::ordered_json document;
  /// Empty when all checks of the run passed; otherwise what is wrong with it, for stderr and a non-zero exit status.
  std::string failure;
  /// One or two sentences for people.
  std::string meaning;
  /// What stands beside result.json: a name and its text.
  struct File {
    std::string name;
    std::string text;
  };
  std::vector<File> files;
};

/// Version of the layout of result.json. It grows; nothing in it changes its meaning.
inline constexpr int kResultSchema = 1;

/// UserError for what only a run can find out (a drive that is too small, a broken checkpoint).
RunResult run_scenario(const scenario::Scenario& scenario, const RunOptions& options = {});

/// Version, compiler and build type, as results carry them.
nlohmann::ordered_json build_info();

}  // namespace csdsim::experiment
