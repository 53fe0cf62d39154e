// The attention methods by name, and the settings of their budgets.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/attention/attention_chunks.h"
#include "host_runtime/core/attention/attention_h2o.h"
#include "host_runtime/core/attention/attention_importance.h"
#include "host_runtime/core/attention/attention_infinigen.h"
#include "host_runtime/core/attention/attention_local.h"

namespace csdsim::host {

/// What the ratio of a setting refers to.
enum class RatioMeaning : std::uint8_t {
  tokens,  ///< every method attends to ratio S tokens; SparQ and SparF use r = ratio d components
  traffic  ///< choosing and attending read the ratio of the elements that dense attention reads
};

/// A budget. Values that are stated exactly take precedence; all others follow from the ratio.
struct MethodSettings {
  csdsim::Ratio ratio = csdsim::Ratio::of(1, 8);
  RatioMeaning meaning = RatioMeaning::tokens;
  std::optional<std::uint32_t> r = {};       ///< components
  std::optional<std::uint32_t> k = {};       ///< tokens
  std::optional<std::uint32_t> local = {};   ///< newest tokens within k; else k / 4
  std::optional<std::uint32_t> heavy = {};   ///< H2O, with recent; else half of the budget
  std::optional<std::uint32_t> recent = {};  ///< H2O, with heavy
  std::optional<std::uint32_t> window = {};  ///< newest tokens, the current one included
  std::optional<std::uint32_t> sinks = {};   ///< first tokens; else 0, 4 for streamingllm
};

struct DenseOptions {};
/// The options of a method, independent of the processor that computes it.
using MethodOptions = std::variant<DenseOptions, SparqOptions, H2oOptions, LocalOptions, InfinigenOptions, ChunkOptions,
                                   ImportanceOptions>;

struct ConfiguredMethod {
  std::string_view name;
  MethodOptions options;
  std::string setting;                      ///< the budgets that follow from the settings: "r 8, k S/8, l k/4"
  std::unique_ptr<AttentionMethod> method;  ///< computes on the host's CPU
};

/// The exact budgets that a method takes.
enum class BudgetKind : std::uint8_t { none, components_and_tokens, tokens, heavy_and_recent, window_and_sinks };

struct MethodInfo {
  std::string_view name;
  std::string_view doc;  ///< one sentence, with the paper
  BudgetKind budget = BudgetKind::none;
  bool in_drive = false;  ///< the drive's engine implements it
  /// The options, and the budgets that follow from the settings.
  std::pair<MethodOptions, std::string> (*configure)(const MethodInfo&, const MethodSettings&,
                                                     std::uint32_t head_dim) = nullptr;
  csdsim::Ratio choosing{0, 1};  ///< share of the dense elements that choosing reads, whatever the budget
  bool list_per_layer = false;   ///< all heads of a layer attend to the same tokens
};

/// All methods, dense first.
const std::vector<MethodInfo>& attention_methods();
/// Finds a method by name. UserError, listing the known names, if there is none.
const MethodInfo& attention_method(std::string_view name);

/// True if the settings state a budget of the kind exactly, so that the ratio does not count.
bool is_exact(const MethodSettings& settings, BudgetKind kind);

/// The method on the host's processor. UserError for impossible options.
std::unique_ptr<AttentionMethod> make_method(std::string_view name, const MethodOptions& options);

/// Makes a method for heads of `head_dim`. UserError for an unknown name, a budget out of range, one of heavy and
/// recent without the other, or a traffic ratio that choosing alone exceeds.
ConfiguredMethod configure_method(std::string_view name, const MethodSettings& settings, std::uint32_t head_dim);

}  // namespace csdsim::host
