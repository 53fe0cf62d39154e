#include "host_runtime/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include "base/crc32.h"
#include "base/error.h"
#include "base/text.h"
#include "host_runtime/checkpoint/config_fields.h"
#include "host_runtime/checkpoint/config_json.h"
#include "host_runtime/checkpoint/json_file.h"
#include "host_runtime/checkpoint/mapped_file.h"
#include "host_runtime/checkpoint/safetensors.h"
#include "host_runtime/checkpoint/sentencepiece_tokenizer.h"
#include "host_runtime/checkpoint/tokenizer_json.h"

namespace csdsim::host {
namespace {

[[noreturn]] void no_weights(const std::filesystem::path& directory) {
  std::string hint;
  for (const char* const pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (is_present(directory / pickled))
      hint = fmt::format(
          "; {} is a pickled checkpoint, which csdsim does not read: save the model with "
          "save_pretrained(..., safe_serialization=True)",
          pickled);
  throw UserError(fmt::format("{}: no weights: neither model.safetensors nor model.safetensors.index.json is there{}",
                              directory.string(), hint));
}

}  // namespace

WeightsDigest weights_digest(const std::filesystem::path& directory) {
  const auto single = directory / "model.safetensors", index = directory / "model.safetensors.index.json";
  std::vector<std::filesystem::path> files;
  if (is_present(single)) {
    files = {single};
  } else if (is_present(index)) {
    files = ShardedSafetensors(index).files();
  } else {
    no_weights(directory);
  }
  WeightsDigest digest;
  for (const std::filesystem::path& file : files) {
    const MappedFile mapped(file);
    digest.bytes += mapped.bytes().size();
    digest.crc32 = crc32(mapped.bytes(), digest.crc32);
  }
  return digest;
}

Checkpoint open_checkpoint(const std::filesystem::path& directory) {
  if (!is_present(directory) || !std::filesystem::is_directory(directory)) {
    throw UserError(fmt::format("{}: there is no such model directory", directory.string()));
  }
  Checkpoint checkpoint{read_config(directory / "config.json"), nullptr};
  const auto single = directory / "model.safetensors", index = directory / "model.safetensors.index.json";
  if (is_present(single)) {
    checkpoint.weights = std::make_unique<SafetensorsFile>(single);
  } else if (is_present(index)) {
    checkpoint.weights = std::make_unique<ShardedSafetensors>(index);
  } else {
    no_weights(directory);
  }
  return checkpoint;
}

std::vector<TokenId> end_tokens(const std::filesystem::path& directory) {
  constexpr const char* kField = "eos_token_id";
  for (const char* const name : {"generation_config.json", "config.json"}) {
    const std::filesystem::path path = directory / name;
    if (!is_present(path)) continue;
    const nlohmann::json file = read_json_object(path);
    const auto field = file.find(kField);
    if (field == file.end() || field->is_null()) continue;
    std::vector<TokenId> ends;
    for (const nlohmann::json& id : field->is_array() ? *field : nlohmann::json::array({*field})) {
      if (!id.is_number_unsigned() || id > kMaxCount)
        throw UserError(fmt::format("{}: {}: expected a token id or a list of them, found {}", path.string(), kField,
                                    printable(field->dump())));
      ends.emplace_back(id.get<std::uint32_t>());
    }
    return ends;
  }
  return {};
}

Tokenizer open_tokenizer(const std::filesystem::path& directory, const ModelConfig& config) {
  const auto sentencepiece = directory / "tokenizer.model", byte_level = directory / "tokenizer.json",
             vocabulary = directory / "vocab.json", merges = directory / "merges.txt";
  const auto open = [&] {
    if (is_present(sentencepiece)) return open_sentencepiece(sentencepiece);
    if (is_present(byte_level)) return open_tokenizer_json(byte_level);
    if (is_present(vocabulary) && is_present(merges)) {
      return open_vocabulary_and_merges(vocabulary, merges);
    }
    throw UserError(
        fmt::format("{}: there is no tokenizer (tokenizer.model, tokenizer.json, or vocab.json and merges.txt); give "
                    "token ids instead of text",
                    directory.string()));
  };
  Tokenizer tokenizer = open();
  if (tokenizer.vocabulary() > config.vocab) {
    throw UserError(fmt::format("{}: the tokenizer has {} tokens, but vocab_size of config.json is {}",
                                directory.string(), tokenizer.vocabulary(), config.vocab));
  }
  return tokenizer;
}

}  // namespace csdsim::host
