#include <fmt/format.h>

#include <sstream>
#include <type_traits>

#include "base/text.h"
#include "host_runtime/checkpoint/checkpoint_folder.h"
#include "host_runtime/checkpoint/config_json.h"
#include "scenario/check.h"

namespace csdsim::scenario {
namespace {

/// A dimension of the model and its key in a scenario.
struct Dimension {
  std::string_view key;
  std::uint32_t host::ModelConfig::*field;
};

constexpr Dimension kDimensions[] = {
    {"layers", &host::ModelConfig::layers},     {"heads", &host::ModelConfig::heads},
    {"kv_heads", &host::ModelConfig::kv_heads}, {"head_dim", &host::ModelConfig::head_dim},
    {"hidden_size", &host::ModelConfig::width}, {"ffn_size", &host::ModelConfig::ffn},
    {"vocab_size", &host::ModelConfig::vocab},  {"max_positions", &host::ModelConfig::max_positions},
};

template <class Value>
std::string text_of(Value value) {
  if constexpr (std::is_enum_v<Value>)
    return std::string(name_of(value));
  else
    return fmt::format("{}", value);
}

/// Takes the shape from `file`, a config.json that stands at `source`. Dimensions that the scenario gives too must be
/// equal.
bool take_config(Checker& c, host::ModelSpec& model, std::string_view source, const std::filesystem::path& file) {
  host::ModelConfig checkpoint;
  std::vector<std::string> notes;
  try {
    if (model.path) host::require_checkpoint(model.path->path);
    checkpoint = host::read_config(file, &notes);
  } catch (const UserError& e) {
    // The message has one line per problem; each line starts with the file.
    std::istringstream problems(e.what());
    for (std::string problem; std::getline(problems, problem);)
      c.error_at(source, fmt::format("{}: {}", source, problem));
    return false;
  }
  for (const std::string& note : notes) c.note_at(source, note);
  const auto agree = [&](std::string_view key, auto value, auto of_checkpoint) {
    const std::string path = fmt::format("model.{}", key);
    if (c.given(path) && c.readable({path}) && value != of_checkpoint) {
      c.error_at(path, fmt::format("{}: {} disagrees with the checkpoint, which has {}", path, text_of(value),
                                   text_of(of_checkpoint)));
    }
  };
  for (const Dimension& d : kDimensions) agree(d.key, model.*d.field, checkpoint.*d.field);
  agree("architecture", model.architecture, checkpoint.architecture);
  agree("embeddings", host::embeddings_of(model), host::embeddings_of(checkpoint));
  checkpoint.fatrelu = model.fatrelu;  // a choice of the user, which no config.json states
  static_cast<host::ModelConfig&>(model) = checkpoint;
  return true;
}

}  // namespace

bool check_model(Checker& c) {
  host::ModelSpec& model = c.scenario().model;
  if (!c.readable({"model", "model.preset", "model.path", "model.config"})) return false;
  if (model.path && !model.preset.empty() && !c.first_wins("model.path", "model.preset")) {
    c.note_at("model.path", "model.path is not used: model.preset was given more strongly");
    model.path.reset();
  }
  if (model.config) {
    const std::string_view other = model.path ? "model.path" : "model.preset";
    if ((model.path || !model.preset.empty()) && !c.first_wins("model.config", other)) {
      c.note_at("model.config", fmt::format("model.config is not used: {} was given more strongly", other));
      model.config.reset();
    } else {
      model.path.reset();
    }
  }
  if (model.path || model.config) model.preset.clear();
  if (model.path && !(c.resolve(*model.path, "model.path", "directory", host::hub_hint(model.path->given)) &&
                      take_config(c, model, "model.path", model.path->path / "config.json")))
    return false;
  if (model.config &&
      !(c.resolve(*model.config, "model.config", "file") && take_config(c, model, "model.config", model.config->path)))
    return false;
  for (const Dimension& d : kDimensions) {
    if (!c.readable({fmt::format("model.{}", d.key)})) return false;
  }
  if (!c.readable({"model.architecture", "model.embeddings"})) return false;
  std::vector<std::string> missing;
  for (const Dimension& d : kDimensions) {
    if (model.*d.field == 0) missing.emplace_back(d.key);
  }
  if (!missing.empty()) {
    const std::string alone =
        c.given("workload") ? "" : "; a file with a drive only runs with workload: {kind: block_io}";
    c.error_at("model", missing.size() == std::size(kDimensions)
                            ? "model: name one: {preset: opt-13b}, {path: DIR} or {config: FILE}" + alone
                            : fmt::format("model: {} missing; or name a preset or a path", join(missing)));
    return false;
  }
  c.require(model.heads % model.kv_heads == 0, {"model.kv_heads", "model.heads"},
            fmt::format("model.kv_heads: {} heads are not a multiple of {} KV heads", model.heads, model.kv_heads));
  c.require(!model.fatrelu || model.architecture != host::Architecture::opt, {"model.fatrelu", "model.architecture"},
            "model.fatrelu: it replaces the SiLU of a gated network; opt has ReLU and no gate");
  return true;
}

}  // namespace csdsim::scenario
