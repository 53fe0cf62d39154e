// The interface of a kind of experiment, the map `workload` of a scenario. Each kind is one folder of experiment/ or a
// shared library; no other code knows its name.
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
#include "base/metric.h"
#include "base/param.h"
#include "base/units.h"
#include "host_runtime/core/decoder/processor.h"
#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {
enum class FilePath : std::uint8_t;
}

namespace csdsim::scenario {

class Checker;
struct Registries;
struct Scenario;

struct RunOptions {
  std::optional<std::filesystem::path> trace;      ///< Chrome trace of the run
  Bytes trace_limit{200'000'000};                  ///< largest size of its file
  std::optional<std::filesystem::path> waveforms;  ///< VCD file of the modules of the drives (fidelity: at)
  /// Prompts that replace those of the workload: one as text, or any number as token ids.
  std::optional<std::string> prompt_text;
  std::vector<std::vector<host::TokenId>> prompt_tokens;
  /// Carried runs: a text ends with the first of the checkpoint's end tokens.
  bool stop_at_eos = false;
  /// Carried runs: the result states the probability of each new token, and those of so many of the likeliest.
  std::optional<std::uint32_t> logprobs;
  /// Carried runs: a safetensors file of the logits that each new token was chosen by.
  std::optional<std::filesystem::path> logits;
  /// Carried runs: the processor that computes everything but the offloaded attention.
  host::Processor processor = host::Processor::cpu;
  /// Progress callback: (phase, done, total).
  std::function<void(std::string_view phase, std::uint64_t done, std::uint64_t total)> progress;
  /// Takes one line for the user before long work begins: what it is and about how long it takes.
  std::function<void(const std::string&)> notice;
  /// Runs whose experiment ends_early(): true once the run shall end, with a result of what it has done.
  std::function<bool()> interrupted;
};

/// The result of a run, and whether its checks passed.
struct RunResult {
  nlohmann::ordered_json document;  ///< content of DIR/result.json
  /// Empty when all checks of the run passed; otherwise the reason, for stderr and a non-zero exit status.
  std::string failure;
  /// One or two sentences that interpret the result.
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

  /// Describes the parameters.
  virtual void describe(ParamVisitor& v) = 0;
  /// Checks the parameters of the scenario that this experiment uses against each other; looks for its input files.
  virtual void check(Checker& c) = 0;
  /// Removes the parameters that this experiment does not use from the effective configuration.
  virtual void prune(nlohmann::ordered_json& config, const Scenario& scenario) const = 0;

  /// True if the drives keep a KV cache and compute attention.
  virtual bool attends() const { return true; }
  /// True if the experiment writes blocks, so that a write buffer has an effect.
  virtual bool writes_blocks(const Scenario&) const { return true; }
  /// True if its results have a file metrics.prom, in Prometheus' text format.
  virtual bool has_prometheus_text() const { return false; }
  /// True if it can run with simulation.data: wear, which has no time.
  virtual bool runs_without_time() const { return false; }
  /// True if a run has a result when it is interrupted (RunOptions::interrupted); its document then has a map
  /// `partial`.
  virtual bool ends_early(const Scenario&) const { return false; }
  /// Share of the erase blocks of each plane that the KV namespace gets.
  virtual double kv_share(const Scenario&) const { return attends() ? 1 : 0; }
  /// The host's path to files on the drives; nothing if it has none.
  virtual std::optional<host::FilePath> file_path(const Scenario&) const { return {}; }

  /// What is known of the checked scenario without running it: {metrics: {...}, stats: {...}}, named as in the document
  /// of a run.
  virtual nlohmann::ordered_json planned(const Scenario& /*scenario*/) const {
    return nlohmann::ordered_json::object();
  }

  /// The metrics of its results; with nothing stated, sweeps take any name.
  virtual std::vector<MetricInfo> metrics(const Registries&) const { return {}; }

  /// Runs the checked scenario. Throws UserError for mistakes that only a run can detect (a drive that is too small, a
  /// broken checkpoint).
  virtual RunResult run(const Scenario& scenario, const RunOptions& options) const = 0;
};

/// Implements clone() with the copy constructor.
template <class Derived>
class CopyableExperiment : public Experiment {
 public:
  std::unique_ptr<Experiment> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

using ExperimentKinds = Kinds<Experiment>;

/// Removes the value at a dotted path ("platform.device.energy.mac") if there is one.
void erase_path(nlohmann::ordered_json& config, std::string_view path);

}  // namespace csdsim::scenario
