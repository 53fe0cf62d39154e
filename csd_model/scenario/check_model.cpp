#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/config/yaml.h"
#include "base/text.h"
#include "csd_model/scenario/check.h"

namespace csdsim::scenario {
namespace {

/// A dimension of the model: its key in a scenario, and the names under which config.json may hold it.
struct Dimension {
  std::string_view key;
  std::uint32_t ModelConfig::*field;
  std::initializer_list<const char*> names;
};

const Dimension kDimensions[] = {
    {"layers", &ModelConfig::layers, {"num_hidden_layers"}},
    {"heads", &ModelConfig::heads, {"num_attention_heads"}},
    {"kv_heads", &ModelConfig::kv_heads, {"num_key_value_heads", "num_attention_heads"}},
    {"hidden_size", &ModelConfig::hidden_size, {"hidden_size"}},
    {"ffn_size", &ModelConfig::ffn_size, {"ffn_dim", "intermediate_size"}},
    {"vocab_size", &ModelConfig::vocab_size, {"vocab_size"}},
    {"max_positions", &ModelConfig::max_positions, {"max_position_embeddings"}},
};

/// Reads one positive integer; throws UserError that names the key.
std::uint32_t dimension(const nlohmann::json& json, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto it = json.find(name);
    if (it == json.end() || it->is_null()) continue;
    constexpr std::uint64_t kMax = 1 << 24;
    if (!it->is_number_unsigned() || it->get<std::uint64_t>() == 0 || it->get<std::uint64_t>() > kMax) {
      throw UserError(fmt::format("{} is {}, expected a whole number from 1 to {}", name, printable(it->dump()), kMax));
    }
    return it->get<std::uint32_t>();
  }
  throw UserError(fmt::format("has no {}", *names.begin()));
}

/// Shape from DIR/config.json (Hugging Face). Throws UserError.
ModelConfig read_shape(const std::filesystem::path& directory) {
  const auto json = nlohmann::json::parse(config::read_file(directory / "config.json"), nullptr, false);
  if (!json.is_object()) throw UserError("is not a JSON object");
  ModelConfig shape;
  for (const Dimension& d : kDimensions) shape.*d.field = dimension(json, d.names);
  if (json.contains("head_dim") && !json["head_dim"].is_null()) {
    shape.head_dim = dimension(json, {"head_dim"});
  } else {
    if (shape.hidden_size % shape.heads != 0) {
      throw UserError(
          fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", shape.hidden_size, shape.heads));
    }
    shape.head_dim = shape.hidden_size / shape.heads;
  }
  return shape;
}

/// Takes the shape of the checkpoint; what the scenario says besides has to agree.
bool take_checkpoint(Checker& c, ModelConfig& model) {
  if (!c.resolve(*model.path, "model.path", "directory")) return false;
  ModelConfig shape;
  try {
    shape = read_shape(model.path->path);
  } catch (const UserError& e) {
    const std::string where = (model.path->path / "config.json").string();
    const std::string_view what = e.what();
    // Errors of opening name the file already.
    c.error_at("model.path", what.starts_with(where) ? fmt::format("model.path: {}", what)
                                                     : fmt::format("model.path: {}: {}", where, what));
    return false;
  }
  const auto take = [&](std::string_view key, std::uint32_t ModelConfig::*field) {
    const std::string path = fmt::format("model.{}", key);
    if (c.given(path) && c.readable({path}) && model.*field != shape.*field) {
      c.error_at(path,
                 fmt::format("{}: {} disagrees with the checkpoint, which has {}", path, model.*field, shape.*field));
    }
    model.*field = shape.*field;
  };
  for (const Dimension& d : kDimensions) take(d.key, d.field);
  take("head_dim", &ModelConfig::head_dim);
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
  if (!c.readable({"model.head_dim"})) return false;
  std::vector<std::string> missing;
  for (const Dimension& d : kDimensions) {
    if (model.*d.field == 0) missing.emplace_back(d.key);
  }
  if (model.head_dim == 0) missing.emplace_back("head_dim");
  if (!missing.empty()) {
    c.error_at("model", missing.size() == std::size(kDimensions) + 1
                            ? "model: name one: {preset: opt-13b} or {path: DIR}"
                            : fmt::format("model: {} missing; or name a preset or a path", join(missing)));
    return false;
  }
  c.require(model.heads % model.kv_heads == 0, {"model.kv_heads", "model.heads"},
            fmt::format("model.kv_heads: {} heads are not a multiple of {} KV heads", model.heads, model.kv_heads));
  return true;
}

}  // namespace csdsim::scenario
