// A scenario: the question that one run answers, with every value resolved (DESIGN, contract "Scenario").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/param.h"
#include "host_runtime/core/planner/model_spec.h"
#include "host_runtime/core/planner/sparf_budget.h"
#include "platform/platform_config.h"
#include "scenario/block_workload.h"
#include "scenario/policy_workload.h"

namespace csdsim::scenario {

enum class RatioMode : std::uint8_t { uniform, traffic };
enum class Method : std::uint8_t { dense, sparf };

/// InstInfer with exact attention in the drive.
struct InstinferDense {
  static constexpr std::string_view kKind = "instinfer-dense";
  static constexpr std::string_view kDoc = "InstInfer with dense attention in the drive.";
  Method method = Method::dense;
};

/// InstInfer with SparF attention in the drive.
struct InstinferSparf {
  static constexpr std::string_view kKind = "instinfer-sparf";
  static constexpr std::string_view kDoc = "InstInfer with SparF attention in the drive: SparQ on pages in two steps.";
  Method method = Method::sparf;
  Ratio ratio = Ratio::of(1, 8);
  RatioMode ratio_mode = RatioMode::uniform;
  std::optional<std::uint32_t> r;  ///< components of q; unset: from ratio
  std::optional<std::uint32_t> k;  ///< tokens attended; unset: from ratio
  std::optional<std::uint32_t> l;  ///< newest tokens that are always attended; unset: k/4
};

/// The same for the planner, which resolves r, k and l for every context (host::SparfBudget).
host::SparfParameters sparf_parameters(const InstinferSparf& system);

using SystemConfig = std::variant<InstinferDense, InstinferSparf>;

/// Decoding of a batch: equal lengths, or the prompts of a file.
struct GenerationWorkload {
  static constexpr std::string_view kKind = "generation";
  static constexpr std::string_view kDoc = "Prompts are prefilled and tokens are generated.";
  std::uint32_t batch = 1;
  std::uint32_t input_tokens = 128;
  std::uint32_t output_tokens = 128;
  Ratio temperature{0, 1};                    ///< 0: greedy
  std::optional<std::uint32_t> top_k;         ///< draw from the likeliest tokens only; unset: all
  Ratio top_p{1, 1};                          ///< draw from the likeliest tokens of this mass
  std::optional<InputPath> prompts;           ///< a prompt a line; replaces batch and input_tokens
  std::optional<std::uint32_t> mini_batches;  ///< parts of the batch that take turns on GPU and drive; unset: 2, or 1
  std::optional<BackgroundWorkload> background;  ///< on the same drive
};

using WorkloadConfig = std::variant<GenerationWorkload, BlockIoWorkload, TraceWorkload, PolicyWorkload>;

enum class DataMode : std::uint8_t { timing, carried };

/// Picks where tokens cluster: a share of the token pages is touched.
struct ClusteredSelection {
  static constexpr std::string_view kKind = "clustered";
  static constexpr std::string_view kDoc = "Selected tokens share pages: a given share of the token pages is touched.";
  Ratio token_page_fraction = Ratio::of(1, 4);
};
/// Picks recorded on a real checkpoint by `csdsim eval --record`.
struct RecordedSelection {
  static constexpr std::string_view kKind = "recorded";
  static constexpr std::string_view kDoc =
      "Selections recorded by csdsim eval --record, stretched to the run's contexts and heads.";
  InputPath file;
};
using SelectionConfig = std::variant<ClusteredSelection, RecordedSelection>;

/// Which part of a long run is simulated.
struct SamplingConfig {
  std::uint32_t layers = 2;
  std::uint32_t steps = 8;
};

/// Another way to decode the same prompts, to compare tokens with.
enum class Comparison : std::uint8_t { host, instinfer_dense, instinfer_sparf };

struct SimulationConfig {
  DataMode data = DataMode::timing;
  std::vector<Comparison> compare;  ///< carried runs
  SelectionConfig selection;
  std::optional<SamplingConfig> sampling;  ///< unset: everything is simulated
};

struct Scenario {
  std::string name;
  std::uint64_t seed = 1;
  host::ModelSpec model;
  platform::PlatformConfig platform;
  SystemConfig system;
  WorkloadConfig workload;
  SimulationConfig simulation;
  std::vector<std::string> preset_files;  ///< read beside the built-in presets; absolute

  std::string_view system_kind() const;
  std::string_view workload_kind() const;
  /// The drive is a plain SSD: there is no model and no offload system.
  bool block_only() const {
    return std::holds_alternative<BlockIoWorkload>(workload) || std::holds_alternative<TraceWorkload>(workload);
  }
};

void describe(ParamVisitor& v, InstinferDense& c);
void describe(ParamVisitor& v, InstinferSparf& c);
void describe(ParamVisitor& v, GenerationWorkload& c);
void describe(ParamVisitor& v, ClusteredSelection& c);
void describe(ParamVisitor& v, RecordedSelection& c);
void describe(ParamVisitor& v, SamplingConfig& c);
void describe(ParamVisitor& v, SimulationConfig& c);
void describe(ParamVisitor& v, Scenario& c);

}  // namespace csdsim::scenario

namespace csdsim {

template <>
struct EnumValues<scenario::RatioMode> {
  static constexpr EnumValue<scenario::RatioMode> values[] = {
      {scenario::RatioMode::uniform, "uniform",
       "The ratio applies to components and to tokens: r = ratio d, k = ratio S."},
      {scenario::RatioMode::traffic, "traffic", "The ratio is that of all elements moved; k follows from it."}};
};
template <>
struct EnumValues<scenario::Method> {
  static constexpr EnumValue<scenario::Method> values[] = {
      {scenario::Method::dense, "dense", "Every token is attended."},
      {scenario::Method::sparf, "sparf", "SparQ on flash pages in two steps."}};
};
template <>
struct EnumValues<scenario::Comparison> {
  static constexpr EnumValue<scenario::Comparison> values[] = {
      {scenario::Comparison::host, "host", "The same method with attention on the host: tokens must be equal."},
      {scenario::Comparison::instinfer_dense, "instinfer-dense", "Dense attention in the drive."},
      {scenario::Comparison::instinfer_sparf, "instinfer-sparf", "SparF attention in the drive."}};
};
template <>
struct EnumValues<scenario::DataMode> {
  static constexpr EnumValue<scenario::DataMode> values[] = {
      {scenario::DataMode::timing, "timing", "Page operations without page bytes."},
      {scenario::DataMode::carried, "carried", "Pages hold real bytes and answers are computed from them."}};
};

}  // namespace csdsim
