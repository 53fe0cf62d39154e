#include <fmt/format.h>

#include <sstream>
#include <type_traits>

#include "base/text.h"
#include "host_runtime/checkpoint/config_json.h"
#include "scenario/check.h"

namespace csdsim::scenario {
namespace {

/// A dimension of the model: its key in a scenario, and what a checkpoint calls it.
struct Dimension {
  std::string_view key;
  std::uint32_t ModelConfig::*field;
  std::uint32_t host::ModelConfig::*of_checkpoint;
};

constexpr Dimension kDimensions[] = {
    {"layers", &ModelConfig::layers, &host::ModelConfig::layers},
    {"heads", &ModelConfig::heads, &host::ModelConfig::heads},
    {"kv_heads", &ModelConfig::kv_heads, &host::ModelConfig::kv_heads},
    {"head_dim", &ModelConfig::head_dim, &host::ModelConfig::head_dim},
    {"hidden_size", &ModelConfig::hidden_size, &host::ModelConfig::width},
    {"ffn_size", &ModelConfig::ffn_size, &host::ModelConfig::ffn},
    {"vocab_size", &ModelConfig::vocab_size, &host::ModelConfig::vocab},
    {"max_positions", &ModelConfig::max_positions, &host::ModelConfig::max_positions},
};

template <class Value>
std::string text_of(Value value) {
  if constexpr (std::is_enum_v<Value>)
    return std::string(name_of(value));
  else
    return fmt::format("{}", value);
}

/// Takes the shape of the checkpoint; what the scenario says besides has to agree.
bool take_checkpoint(Checker& c, ModelConfig& model) {
  if (!c.resolve(*model.path, "model.path", "directory")) return false;
  host::ModelConfig shape;
  try {
    shape = host::read_config(model.path->path / "config.json");
  } catch (const UserError& e) {
    // A line a problem, each beginning with the file.
    std::istringstream problems(e.what());
    for (std::string problem; std::getline(problems, problem);)
      c.error_at("model.path", fmt::format("model.path: {}", problem));
    return false;
  }
  const auto take = [&](std::string_view key, auto& value, auto of_checkpoint) {
    const std::string path = fmt::format("model.{}", key);
    if (c.given(path) && c.readable({path}) && value != of_checkpoint) {
      c.error_at(path, fmt::format("{}: {} disagrees with the checkpoint, which has {}", path, text_of(value),
                                   text_of(of_checkpoint)));
    }
    value = of_checkpoint;
  };
  for (const Dimension& d : kDimensions) take(d.key, model.*d.field, shape.*d.of_checkpoint);
  take("architecture", model.architecture, shape.architecture);
  take("embeddings", model.embeddings, shape.tied_embeddings ? Embeddings::tied : Embeddings::untied);
  return true;
}

}  // namespace

bool check_model(Checker& c) {
  ModelConfig& model = c.scenario().model;
  if (!c.readable({"model", "model.preset", "model.path"})) return false;
  if (model.path && !model.preset.empty() && !c.first_wins("model.path", "model.preset")) {
    c.note_at("model.path", "model.path is not used: model.preset was given more strongly");
    model.path.reset();
  } else if (model.path) {
    model.preset.clear();
    if (!take_checkpoint(c, model)) return false;
  }
  for (const Dimension& d : kDimensions) {
    if (!c.readable({fmt::format("model.{}", d.key)})) return false;
  }
  if (!c.readable({"model.architecture", "model.embeddings"})) return false;
  std::vector<std::string> missing;
  for (const Dimension& d : kDimensions) {
    if (model.*d.field == 0) missing.emplace_back(d.key);
  }
  if (!missing.empty()) {
    c.error_at("model", missing.size() == std::size(kDimensions)
                            ? "model: name one: {preset: opt-13b} or {path: DIR}"
                            : fmt::format("model: {} missing; or name a preset or a path", join(missing)));
    return false;
  }
  c.require(model.heads % model.kv_heads == 0, {"model.kv_heads", "model.heads"},
            fmt::format("model.kv_heads: {} heads are not a multiple of {} KV heads", model.heads, model.kv_heads));
  return true;
}

}  // namespace csdsim::scenario
