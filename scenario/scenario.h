// A scenario: the complete configuration of one run, with every value resolved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/param.h"
#include "ftl/ftl_config.h"
#include "host_runtime/core/model/model_spec.h"
#include "platform/platform_config.h"
#include "scenario/registries.h"

namespace csdsim::scenario {

/// The selected tokens are clustered: they touch a given share of the token pages, or lie so many to a page.
struct ClusteredSelectionConfig {
  static constexpr std::string_view kKind = "clustered";
  static constexpr std::string_view kDoc =
      "Selected tokens share pages: a given share of the token pages is touched, or each touched page has a given "
      "number of them.";
  Ratio token_page_fraction = Ratio::of(1, 4);  ///< without effect if `selected_per_page` is set
  std::optional<Ratio> selected_per_page;
};
/// Selections recorded on a real checkpoint by `csdsim eval --record`.
struct RecordedSelectionConfig {
  static constexpr std::string_view kKind = "recorded";
  static constexpr std::string_view kDoc =
      "Selections recorded by csdsim eval --record, stretched to the run's contexts and heads.";
  InputPath file;
};
using SelectionConfig = std::variant<ClusteredSelectionConfig, RecordedSelectionConfig>;

/// Which tokens matter comes from host::TokenLocalityModel, with these constants.
struct ModelledTokensConfig {
  static constexpr std::string_view kKind = "modelled";
  static constexpr std::string_view kDoc =
      "A model of locality, with constants fitted to a recording (csdsim pools FILE --locality).";
  Ratio recent = Ratio::of(514, 1000);
  Ratio concentration = Ratio::of(388, 100);
  Ratio persistence = Ratio::of(263, 1000);
  Ratio drift = Ratio::of(42, 1000);
};
/// The tokens of a recording by `csdsim eval --record`.
struct RecordedTokensConfig {
  static constexpr std::string_view kKind = "recorded";
  static constexpr std::string_view kDoc =
      "Tokens recorded by csdsim eval --record, at the contexts that were recorded.";
  InputPath file;
};
using TokensConfig = std::variant<ModelledTokensConfig, RecordedTokensConfig>;

/// The part of a long run that is simulated: as much as the error asks for, or a stated number of layers, steps and
/// heads.
struct SamplingConfig {
  Ratio error = Ratio::of(1, 100);
  std::optional<std::uint32_t> layers;
  std::optional<std::uint32_t> steps;
  std::optional<std::uint32_t> heads;
};

/// Entry of `compare` for the same plan with attention on the host. Every other entry is the kind of an offload system.
inline constexpr std::string_view kHostComparison = "host";

struct SimulationConfig {
  ftl::DataMode data = ftl::DataMode::timing;
  std::vector<std::string> compare;     ///< carried runs: other ways to decode the same prompts
  std::vector<std::string> comparable;  ///< valid entries of `compare`
  SelectionConfig selection;
  TokensConfig tokens;                                        ///< timing runs: which tokens matter
  std::optional<InputPath> neurons;                           ///< timing runs: recorded neurons
  std::optional<SamplingConfig> sampling = SamplingConfig{};  ///< unset: everything is simulated
  std::string why_whole;                                      ///< why sampling was left out where it was not refused
};

struct Scenario {
  explicit Scenario(const std::shared_ptr<const Registries>& registries);

  std::string name;
  std::uint64_t seed = 1;
  /// Set by the caller of load_scenario(): carried runs compute attention on the host. Nothing is simulated, so the
  /// platform is neither checked nor part of the result.
  bool attention_on_host = false;
  host::ModelSpec model;
  platform::PlatformConfig platform;
  Chosen<host::OffloadSystem> system;
  Chosen<Experiment> workload;
  SimulationConfig simulation;
  std::vector<std::string> preset_files;  ///< absolute paths of preset files besides the built-in presets
  std::vector<std::string> plugin_files;  ///< absolute paths of shared libraries that add kinds
  /// Every file and directory that the scenario names and that the run reads.
  std::vector<std::filesystem::path> inputs;
};

void describe(ParamVisitor& v, ClusteredSelectionConfig& c);
void describe(ParamVisitor& v, RecordedSelectionConfig& c);
void describe(ParamVisitor& v, ModelledTokensConfig& c);
void describe(ParamVisitor& v, RecordedTokensConfig& c);
void describe(ParamVisitor& v, SamplingConfig& c);
void describe(ParamVisitor& v, SimulationConfig& c);
void describe(ParamVisitor& v, Scenario& c);

}  // namespace csdsim::scenario
