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
#include "host_runtime/checkpoint/safetensors.h"
#include "host_runtime/checkpoint/sentencepiece_tokenizer.h"
#include "host_runtime/checkpoint/tokenizer_json.h"

namespace csdsim::host {
namespace {

/// Lines of base64 and a number: the form of tiktoken, which has the name of sentencepiece's file in Llama 3.
bool is_tiktoken(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string_view text{reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  const std::string_view line = text.substr(0, std::min(text.find('\n'), std::size_t{1024}));
  const std::size_t blank = line.find(' ');
  constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
  return blank != line.npos && blank > 0 && line.substr(0, blank).find_first_not_of(kBase64) == line.npos &&
         blank + 1 < line.size() && line.substr(blank + 1).find_first_not_of("0123456789\r") == line.npos;
}

/// Whether a tokenizer.json is of the kind that open_tokenizer_json() reads; sentencepiece's tokens spelt as BPE are
/// not.
bool is_byte_level(const std::filesystem::path& path) {
  const nlohmann::json file = read_json_object(path, kTokenizerLimit);
  const auto pre_tokenizer = file.find("pre_tokenizer");
  return pre_tokenizer != file.end() && pre_tokenizer->dump().find("\"ByteLevel\"") != std::string::npos;
}

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
  require_checkpoint(directory);
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

Tokenizer open_tokenizer(const std::filesystem::path& directory) {
  const auto sentencepiece = directory / "tokenizer.model", fast = directory / "tokenizer.json",
             vocabulary = directory / "vocab.json", merges = directory / "merges.txt";
  const bool tiktoken = is_present(sentencepiece) && is_tiktoken(sentencepiece);
  if (is_present(fast) && (tiktoken || !is_present(sentencepiece) || is_byte_level(fast)))
    return open_tokenizer_json(fast);
  if (is_present(sentencepiece) && !tiktoken) return open_sentencepiece(sentencepiece);
  if (is_present(vocabulary) && is_present(merges)) return open_vocabulary_and_merges(vocabulary, merges);
  if (tiktoken)
    throw UserError(
        fmt::format("{}: is a tiktoken vocabulary, which csdsim does not read; take the tokenizer.json of the "
                    "model (transformers: AutoTokenizer, save_pretrained())",
                    sentencepiece.string()));
  throw UserError(
      fmt::format("{}: there is no tokenizer (tokenizer.model, tokenizer.json, or vocab.json and merges.txt); give "
                  "token ids instead of text",
                  directory.string()));
}

}  // namespace csdsim::host
