#include "host_runtime/checkpoint/config_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "host_runtime/checkpoint/config_fields.h"
#include "host_runtime/checkpoint/json_file.h"

namespace csdsim::host {
namespace {

using nlohmann::json;

constexpr float kMaxTheta = 1e12f;

// Architectures by the name of the class that saved the checkpoint. Except for the bare decoders, all have a
// language-model head.
constexpr std::string_view kClassPrefixes[] = {"OPT", "Llama", "Qwen2", "Mistral", "Qwen3"};

void read_opt(ConfigFields& fields, ModelConfig& config) {
  config.kv_heads = config.heads;
  config.ffn = fields.count("ffn_dim");
  config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
  const std::uint32_t embedding = fields.count("word_embed_proj_dim", config.width);
  if (embedding != config.width) config.embedding_width = embedding;
  config.norm_first = fields.boolean("do_layer_norm_before", true);
  const bool removed = fields.boolean("_remove_final_layer_norm", false);
  config.final_norm = config.norm_first && !removed;
  fields.only("enable_bias", true, "OPT without biases is not implemented");
  fields.only("layer_norm_elementwise_affine", true, "norms without parameters are not implemented");
  fields.only("activation_function", "relu", "OPT uses ReLU");
}

// "rope_type"; older files call it "type". Both are written by some tools and must agree.
std::string rope_type(ConfigFields& rope) {
  const std::string type = rope.text("rope_type"), older = rope.text("type");
  if (!type.empty() && !older.empty() && type != older) {
    rope.problem("type", fmt::format("'{}' contradicts rope_type '{}'", printable(older), printable(type)));
  }
  return !type.empty() ? type : !older.empty() ? older : "default";
}

/// Positions of the training, which the long contexts of the model exceed. As in transformers 5, the top level comes
/// before the scaling, and without either it is max_position_embeddings. That may be less, where somebody has lowered
/// it.
std::uint32_t original_positions(ConfigFields& fields, ConfigFields& rope, const ModelConfig& config,
                                 std::vector<std::string>& notes) {
  constexpr const char* kField = "original_max_position_embeddings";
  const bool top = fields.has(kField), inner = rope.has(kField);
  const std::uint32_t positions = (top ? fields : rope).count(kField, config.max_positions);
  if (top && inner && *fields.find(kField) != *rope.find(kField))
    fields.problem(kField, fmt::format("{} contradicts {} in the scaling", positions, rope.find(kField)->dump()));
  if (positions > config.max_positions && fields.has("max_position_embeddings"))
    notes.push_back(
        fmt::format("{} {} is above max_position_embeddings {}; the scaling is that of {}, as in transformers", kField,
                    positions, config.max_positions, positions));
  return positions;
}

Llama3RopeScaling read_llama3(ConfigFields& fields, ConfigFields& rope, const ModelConfig& config,
                              std::vector<std::string>& notes) {
  Llama3RopeScaling scaling;
  scaling.factor = rope.number("factor", 1e6);
  scaling.low_frequency_factor = rope.number("low_freq_factor", 1e6);
  scaling.high_frequency_factor = rope.number("high_freq_factor", 1e6);
  scaling.original_positions = original_positions(fields, rope, config, notes);
  if (rope.has("low_freq_factor") && rope.has("high_freq_factor") &&
      scaling.low_frequency_factor >= scaling.high_frequency_factor) {
    rope.problem("low_freq_factor", fmt::format("{} is not below high_freq_factor {}", scaling.low_frequency_factor,
                                                scaling.high_frequency_factor));
  }
  return scaling;
}

/// How much longer YaRN makes Q and K: attention_factor, or what the paper suggests.
float yarn_magnitude(ConfigFields& rope, float factor) {
  const bool both = rope.counts("mscale") & rope.counts("mscale_all_dim");  // both are read
  if (rope.has("attention_factor")) return rope.number("attention_factor", 1e6);
  const auto suggested = [&](double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * std::log(double{factor}) + 1.0; };
  if (!both) return static_cast<float>(suggested(1));
  return static_cast<float>(suggested(double{rope.number("mscale", 1e6)}) /
                            suggested(double{rope.number("mscale_all_dim", 1e6)}));
}

YarnRopeScaling read_yarn(ConfigFields& fields, ConfigFields& rope, const ModelConfig& config,
                          std::vector<std::string>& notes) {
  YarnRopeScaling scaling;
  scaling.original_positions = original_positions(fields, rope, config, notes);
  // A factor that is null is what the positions of the config state; one that is absent is an error in transformers.
  scaling.factor = rope.is_null("factor")
                       ? static_cast<float>(config.max_positions) / static_cast<float>(scaling.original_positions)
                       : rope.number("factor", 1e6);
  if (rope.counts("beta_fast")) scaling.beta_fast = rope.number("beta_fast", 1e6);
  if (rope.counts("beta_slow")) scaling.beta_slow = rope.number("beta_slow", 1e6);
  if (scaling.beta_slow > scaling.beta_fast)
    rope.problem("beta_slow", fmt::format("{} is above beta_fast {}", scaling.beta_slow, scaling.beta_fast));
  scaling.truncate = rope.boolean("truncate", !rope.is_null("truncate"));
  scaling.magnitude = yarn_magnitude(rope, scaling.factor);
  return scaling;
}

/// The object with the rotary positions: "rope_scaling" (transformers 4) or "rope_parameters" (5), which may hold one
/// object per kind of layer. Nothing where neither says anything.
std::optional<ConfigFields> rope_object(ConfigFields& fields, std::vector<std::string>& notes) {
  const auto given = [&](const char* field) { return fields.has(field) && !fields.find(field)->empty(); };
  const bool newer = given("rope_parameters"), older = given("rope_scaling");
  if (newer && older && *fields.find("rope_parameters") != *fields.find("rope_scaling"))
    fields.problem("rope_scaling", "is given, and differs from rope_parameters; keep one");
  if (!newer && !older) return {};
  const char* const field = newer ? "rope_parameters" : "rope_scaling";
  std::optional<ConfigFields> rope = fields.object(field);
  constexpr const char* kFull = "full_attention";
  if (!rope || !rope->has(kFull)) return rope;
  // Layers of other kinds are not implemented; what is said of them must be the same, or nothing.
  const json all = *fields.find(field);
  for (const auto& [kind, of_kind] : all.items())
    if (!kind.ends_with("_attention"))
      rope->problem(printable(kind), "is no kind of layer: beside full_attention, only kinds of layers may stand");
    else if (!of_kind.is_null() && of_kind != all[kFull])
      rope->problem(printable(kind), "differs from full_attention: other kinds of layers are not implemented");
  notes.push_back(fmt::format(
      "{}: full_attention is read; for this family transformers 5.24 reads no map per kind of layer", field));
  return rope->object(kFull);
}

/// Extends the longest context by a scaling of positions. transformers computes contexts of any length; vLLM stops at
/// this one.
void extend_positions(ModelConfig& config, double positions, std::string_view type, std::vector<std::string>& notes) {
  const double most = std::min(std::floor(positions), double{kMaxCount});
  if (most <= config.max_positions) return;
  notes.push_back(
      fmt::format("max_position_embeddings is {}; with the {} scaling of rotary positions the longest "
                  "context is {}",
                  config.max_positions, type, most));
  config.max_positions = static_cast<std::uint32_t>(most);
}

void read_scaling(ConfigFields& fields, ConfigFields& rope, ModelConfig& config, std::vector<std::string>& notes) {
  const std::string type = rope_type(rope);
  if (type == "llama3") {
    const Llama3RopeScaling scaling = read_llama3(fields, rope, config, notes);
    config.rotary.scaling = scaling;
    // Published configs state the longer context, which is less than the factor gives, in max_position_embeddings.
    if (config.max_positions == scaling.original_positions)
      extend_positions(config, double{scaling.factor} * config.max_positions, type, notes);
  } else if (type == "linear") {
    const LinearRopeScaling scaling{rope.number("factor", 1e6)};
    config.rotary.scaling = scaling;
    extend_positions(config, double{scaling.factor} * config.max_positions, type, notes);
  } else if (type == "yarn") {
    const YarnRopeScaling scaling = read_yarn(fields, rope, config, notes);
    config.rotary.scaling = scaling;
    extend_positions(config, double{scaling.factor} * scaling.original_positions, type, notes);
  } else if (type == "dynamic") {
    const DynamicRopeScaling scaling{rope.number("factor", 1e6), config.max_positions};
    if (config.head_dim <= 2) rope.problem("rope_type", "'dynamic' needs heads of more than 2 elements");
    config.rotary.scaling = scaling;
    extend_positions(config, double{scaling.factor} * config.max_positions, type, notes);
  } else if (type != "default") {
    rope.problem("rope_type", fmt::format("'{}' is not implemented; there is: default, linear, dynamic, llama3, yarn",
                                          printable(type)));
    return;
  }
  rope.refuse_unread({}, fmt::format("rope_type '{}'", type));
}

// Rotary positions: rope_theta is part of the object, or stands beside it; transformers 5 prefers the first, 4 the
// second, so that they must not differ.
void read_rotary(ConfigFields& fields, ModelConfig& config, std::vector<std::string>& notes) {
  config.rotary.theta = fields.number("rope_theta", kMaxTheta, 10000.0f);
  fields.only("partial_rotary_factor", 1.0, "rotating a part of a head is not implemented");
  std::optional<ConfigFields> rope = rope_object(fields, notes);
  if (!rope) return;
  const float theta = rope->number("rope_theta", kMaxTheta, config.rotary.theta);
  if (fields.has("rope_theta") && theta != config.rotary.theta)
    fields.problem("rope_theta", fmt::format("{} contradicts {} in {}", config.rotary.theta, theta,
                                             fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling"));
  config.rotary.theta = theta;
  rope->only("partial_rotary_factor", 1.0, "rotating a part of a head is not implemented");
  read_scaling(fields, *rope, config, notes);
}

/// How many layers attend to a sliding window, by layer_types. Nothing where it is absent.
std::optional<std::uint32_t> sliding_layers(ConfigFields& fields, const ModelConfig& config) {
  const json* const types = fields.find("layer_types");
  if (types == nullptr) return {};
  const auto sliding = [](const json& type) { return type == "sliding_attention"; };
  const auto known = [&](const json& type) { return type == "full_attention" || sliding(type); };
  if (!types->is_array() || !std::all_of(types->begin(), types->end(), known)) {
    fields.problem("layer_types",
                   "every layer must be 'full_attention' or 'sliding_attention': other kinds are not implemented");
    return 0;
  }
  if (types->size() != config.layers && fields.has("num_hidden_layers"))
    fields.problem("layer_types", fmt::format("has {} layers, num_hidden_layers is {}", types->size(), config.layers));
  return static_cast<std::uint32_t>(std::count_if(types->begin(), types->end(), sliding));
}

/// The window of layers that attend to one; contexts inside it are all that is computed. As in transformers, Mistral
/// has windows of 4,096 tokens unless config.json says otherwise, Qwen only where use_sliding_window says so, from
/// layer max_window_layers on, and Llama where there is one.
void read_sliding_window(ConfigFields& fields, ModelConfig& config) {
  const bool qwen = config.architecture == Architecture::qwen2 || config.architecture == Architecture::qwen3;
  const bool mistral = config.architecture == Architecture::mistral;
  const bool used = !qwen || fields.boolean("use_sliding_window", false);
  if (!qwen) fields.only("use_sliding_window", false, "the family has no such switch");
  const std::optional<std::uint32_t> layers = sliding_layers(fields, config);
  const bool null = fields.is_null("sliding_window");
  std::optional<std::uint32_t> window;
  if (fields.has("sliding_window")) {
    window = fields.count("sliding_window");
  } else if (!null && (mistral || qwen)) {
    window = 4096;
  }
  if (!used) window.reset();
  if (layers && *layers > 0 && !window)
    fields.problem("layer_types", "'sliding_attention' needs sliding_window, which is not set or not used");
  const std::uint32_t first = !qwen || layers ? 0 : fields.count("max_window_layers", 28, 0);
  if (layers.value_or(config.layers) > 0 && first < config.layers) config.sliding_window = window;
}

void read_llama(ConfigFields& fields, ModelConfig& config, std::vector<std::string>& notes) {
  config.kv_heads = fields.count("num_key_value_heads", config.heads);
  config.ffn = fields.count("intermediate_size");
  config.norm_epsilon = fields.number("rms_norm_eps", 1.0, 1e-6f);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
  read_rotary(fields, config, notes);
  fields.only("hidden_act", "silu", "the feed-forward block is SwiGLU", "swish");
  fields.only("activation", "swiglu", "the feed-forward block is SwiGLU");                           // Falcon 3
  fields.only("use_mrope", false, "positions of images are not implemented");                        // Qwen 2.5
  fields.only("rope_interleaved", false, "positions of neighbouring elements are not implemented");  // SmolLM 2
  if (config.architecture == Architecture::llama) {
    config.attention_biases = fields.boolean("attention_bias", false);
    config.ffn_biases = fields.boolean("mlp_bias", false);
  } else {
    fields.only("attention_bias", false, "other biases than those of the family are not implemented");
  }
  read_sliding_window(fields, config);
}

// Fields that all families share. head_dim follows from the width where it is not given.
void read_common(ConfigFields& fields, ModelConfig& config) {
  config.layers = fields.count("num_hidden_layers");
  config.width = fields.count("hidden_size");
  config.heads = fields.count("num_attention_heads");
  config.vocab = fields.count("vocab_size");
  config.max_positions = fields.count("max_position_embeddings");
  fields.none("quantization_config", "quantised weights are not implemented");
  fields.none("quantization", "quantised weights (MLX) are not implemented");
  fields.only("pruned_heads", json::object(), "pruned heads are not implemented");
  fields.only("add_cross_attention", false, "cross-attention is not implemented");
  const bool divides = config.width % config.heads == 0;
  if (config.architecture != Architecture::opt && fields.counts("head_dim")) {
    config.head_dim = fields.count("head_dim");
  } else {
    if (!divides && fields.has("hidden_size") && fields.has("num_attention_heads")) {
      fields.problem("hidden_size",
                     fmt::format("{} is not a multiple of num_attention_heads {}", config.width, config.heads));
    }
    config.head_dim = std::max(1u, config.width / config.heads);
  }
  if (std::uint64_t{config.heads} * config.head_dim > kMaxCount) {
    fields.problem("num_attention_heads",
                   fmt::format("{} heads of {} are more than {} elements", config.heads, config.head_dim, kMaxCount));
  }
}

void check_heads(ConfigFields& fields, const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    fields.problem("num_key_value_heads",
                   fmt::format("{} do not divide num_attention_heads {}", config.kv_heads, config.heads));
  }
  if (config.architecture != Architecture::opt && config.head_dim % 2 != 0 && fields.has("num_attention_heads")) {
    fields.problem(fields.has("head_dim") ? "head_dim" : "hidden_size",
                   fmt::format("a head of {} elements cannot be rotated: it must be even", config.head_dim));
  }
}

std::optional<Architecture> read_architecture(ConfigFields& fields) {
  const std::string known = fmt::format("known architectures: {}", fmt::join(kArchitectureNames, ", "));
  const json* const type = fields.find("model_type");
  if (type == nullptr || !type->is_string()) {
    fields.problem("model_type", "is missing or not a string; " + known);
    return {};
  }
  const auto it = std::find(kArchitectureNames.begin(), kArchitectureNames.end(), type->get<std::string>());
  if (it == kArchitectureNames.end()) {
    fields.problem("model_type", fmt::format("unknown architecture {}; {}", printable(type->dump()), known));
    return {};
  }
  const auto index = static_cast<std::size_t>(it - kArchitectureNames.begin());
  if (const json* const classes = fields.find("architectures")) {
    const std::string model = std::string(kClassPrefixes[index]) + "Model",
                      causal = std::string(kClassPrefixes[index]) + "ForCausalLM";
    const auto fits = [&](const json& name) { return name == causal || name == model; };
    if (!classes->is_array() || !std::all_of(classes->begin(), classes->end(), fits)) {
      fields.problem("architectures", fmt::format("expected [\"{}\"] for model_type \"{}\", found {}", causal, *it,
                                                  printable(classes->dump())));
    }
  }
  return static_cast<Architecture>(index);
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& path, std::vector<std::string>* notes) {
  const json description = read_json_object(path);
  std::vector<std::string> problems;
  ConfigFields fields(description, path.string(), problems);
  ModelConfig config;
  if (const std::optional<Architecture> architecture = read_architecture(fields)) {
    config.architecture = *architecture;
    read_common(fields, config);
    std::vector<std::string> found;
    architecture == Architecture::opt ? read_opt(fields, config) : read_llama(fields, config, found);
    check_heads(fields, config);
    fields.refuse_unread(kUnreadOfConfig, "csdsim");
    if (notes != nullptr)
      for (const std::string& note : found) notes->push_back(fmt::format("{}: note: {}", path.string(), note));
  }
  throw_problems(problems);
  return config;
}

}  // namespace csdsim::host
