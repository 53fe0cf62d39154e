#include "host_runtime/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include "base/error.h"
#include "host_runtime/checkpoint/config_json.h"
#include "host_runtime/checkpoint/safetensors.h"

namespace csdsim::host {

Checkpoint open_checkpoint(const std::filesystem::path& directory) {
  if (!std::filesystem::is_directory(directory)) {
    throw UserError(fmt::format("{}: there is no such model directory", directory.string()));
  }
  Checkpoint checkpoint{read_config(directory / "config.json"), nullptr};
  const auto single = directory / "model.safetensors", index = directory / "model.safetensors.index.json";
  if (std::filesystem::exists(single)) {
    checkpoint.weights = std::make_unique<SafetensorsFile>(single);
  } else if (std::filesystem::exists(index)) {
    checkpoint.weights = std::make_unique<ShardedSafetensors>(index);
  } else {
    throw UserError(fmt::format("{}: no weights: neither model.safetensors nor model.safetensors.index.json is there",
                                directory.string()));
  }
  return checkpoint;
}

Tokenizer open_tokenizer(const std::filesystem::path& directory, const ModelConfig& config) {
  const auto path = directory / "tokenizer.model";
  Tokenizer tokenizer(path);
  if (tokenizer.vocabulary() > config.vocab) {
    throw UserError(fmt::format("{}: {} tokens, but vocab_size of config.json is {}", path.string(),
                                tokenizer.vocabulary(), config.vocab));
  }
  return tokenizer;
}

}  // namespace csdsim::host
