#include "host_runtime/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crc32.h"
#include "base/error.h"
#include "base/text.h"
#include "host_runtime/checkpoint/checkpoint_folder.h"
#include "host_runtime/checkpoint/config_fields.h"
#include "host_runtime/checkpoint/config_json.h"
#include "host_runtime/checkpoint/json_file.h"
#include "host_runtime/checkpoint/mapped_file.h"
#include "host_runtime/checkpoint/other_tokenizers.h"
#include "host_runtime/checkpoint/safetensors.h"
#include "host_runtime/checkpoint/sentencepiece_tokenizer.h"
#include "host_runtime/checkpoint/tokenizer_json.h"

namespace csdsim::host {
namespace {

/// Whether a tokenizer.json is of the kind that open_tokenizer_json() reads; sentencepiece's tokens spelt as BPE are
/// not.
bool is_byte_level(const std::filesystem::path& path) {
  const nlohmann::json file = read_json_object(path, kTokenizerLimit);
  const auto pre_tokenizer = file.find("pre_tokenizer");
  return pre_tokenizer != file.end() && pre_tokenizer->dump().find("\"ByteLevel\"") != std::string::npos;
}

/// eos_token_id of a file; nothing where it has none. Of generation_config.json no other key is read.
std::optional<std::vector<TokenId>> read_end_tokens(const std::filesystem::path& path, bool generation_config) {
  constexpr const char* kField = "eos_token_id";
  const nlohmann::json file = read_json_object(path);
  std::vector<std::string> problems;
  ConfigFields fields(file, path.string(), problems);
  std::optional<std::vector<TokenId>> ends;
  if (const nlohmann::json* const field = fields.find(kField)) {
    for (const nlohmann::json& id : field->is_array() ? *field : nlohmann::json::array({*field})) {
      if (id.is_number_unsigned() && id <= kMaxCount) {
        if (!ends) ends.emplace();
        ends->emplace_back(id.get<std::uint32_t>());
      } else {
        fields.problem(kField,
                       fmt::format("expected a token id or a list of them, found {}", printable(field->dump())));
      }
    }
  }
  if (generation_config) fields.refuse_unread(kUnreadOfGenerationConfig, "csdsim");
  throw_problems(problems);
  return ends;
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
  require_checkpoint(directory);
  Checkpoint checkpoint{read_config(directory / "config.json"), nullptr};
  if (const auto generation = directory / "generation_config.json"; is_present(generation))
    read_end_tokens(generation, true);
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
  const auto generation = directory / "generation_config.json", config = directory / "config.json";
  if (is_present(generation))
    if (const auto ends = read_end_tokens(generation, true)) return *ends;
  if (is_present(config)) return read_end_tokens(config, false).value_or(std::vector<TokenId>{});
  return {};
}

Tokenizer open_tokenizer(const std::filesystem::path& directory) {
  require_folder(directory);
  const auto sentencepiece = directory / "tokenizer.model", fast = directory / "tokenizer.json",
             vocabulary = directory / "vocab.json", merges = directory / "merges.txt";
  const bool tiktoken = is_present(sentencepiece) && is_tiktoken(sentencepiece);
  if (is_present(fast) && (tiktoken || !is_present(sentencepiece) || is_byte_level(fast)))
    return open_tokenizer_json(fast);
  if (is_present(sentencepiece) && !tiktoken) return open_sentencepiece(sentencepiece);
  if (is_present(vocabulary) && is_present(merges)) return open_vocabulary_and_merges(vocabulary, merges);
  const std::filesystem::path unread = tiktoken ? sentencepiece : unread_tokenizer(directory);
  if (!unread.empty())
    throw UserError(
        fmt::format("{}: is a tokenizer {}, which csdsim does not read; take the tokenizer.json of the "
                    "model (transformers: AutoTokenizer, save_pretrained()), or give token ids",
                    unread.string(), tiktoken ? "of tiktoken" : "in another form"));
  throw UserError(
      fmt::format("{}: there is no tokenizer (tokenizer.model, tokenizer.json, or vocab.json and merges.txt); give "
                  "token ids instead of text",
                  directory.string()));
}

}  // namespace csdsim::host
