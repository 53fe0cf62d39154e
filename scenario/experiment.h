// A kind of experiment, and what it is asked: the map `workload` of a scenario. One folder of experiment/ (or a shared
// library) answers; no other code knows its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/kinds.h"
#include "base/param.h"
#include "host_runtime/core/model_config.h"
#include "host_runtime/core/processor.h"

namespace csdsim::scenario {

class Checker;
struct Scenario;

struct RunOptions {
  std::optional<std::filesystem::path> trace;  ///< Chrome trace of the run's operations
  /// One prompt in the place of the workload's, as text or as token ids.
  std::optional<std::string> prompt_text;
  std::optional<std::vector<host::TokenId>> prompt_tokens;
  bool attention_on_host = false;  ///< carried runs: no drive; the result has no timing
  /// Carried runs: where everything but the offloaded attention is computed.
  host::Processor processor = host::Processor::cpu;
  /// Progress callback: (phase, done, total).
  std::function<void(std::string_view phase, std::uint64_t done, std::uint64_t total)> progress;
  /// Takes one line for the user before long work begins: what it is and about how long it takes.
  std::function<void(const std::string&)> notice;
};

/// What DIR/result.json holds, and whether the run found itself correct.
struct RunResult {
  nlohmann::ordered_json document;
  /// Empty when all checks of the run passed; otherwise what is wrong with it, for stderr and a non-zero exit status.
  std::string failure;
  /// One or two sentences for people.
  std::string meaning;
  /// A file beside result.json.
  struct File {
    std::string name;
    std::string text;
  };
  std::vector<File> files;
};

class Experiment {
 public:
  virtual ~Experiment() = default;
  virtual std::unique_ptr<Experiment> clone() const = 0;

  /// Its parameters.
  virtual void describe(ParamVisitor& v) = 0;
  /// Checks across parameters, of the whole scenario as far as this experiment uses it; looks for its input files.
  virtual void check(Checker& c) = 0;
  /// Takes out of the effective configuration what this experiment does not use.
  virtual void prune(nlohmann::ordered_json& config, const Scenario& scenario) const = 0;

  /// Whether the drives keep a KV cache and attend.
  virtual bool attends() const { return true; }
  /// Whether blocks are written, so that a write buffer has something to hold.
  virtual bool writes_blocks() const { return true; }
  /// Share of the erase blocks of each plane that the KV namespace gets.
  virtual double kv_share() const { return attends() ? 1 : 0; }

  /// Runs the checked scenario. UserError for what only a run can find out (a drive that is too small, a broken
  /// checkpoint).
  virtual RunResult run(const Scenario& scenario, const RunOptions& options) const = 0;
};

/// Implements clone() for an experiment that copies.
template <class Derived>
class CopyableExperiment : public Experiment {
 public:
  std::unique_ptr<Experiment> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

using ExperimentKinds = Kinds<Experiment>;

/// Removes the value at a dotted path ("platform.device.energy.mac"), where there is one.
void erase_path(nlohmann::ordered_json& config, std::string_view path);

}  // namespace csdsim::scenario
