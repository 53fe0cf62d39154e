// A checkpoint directory in Hugging Face form: config.json, safetensors, tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "host_runtime/checkpoint/tokenizer.h"
#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/model/weight_source.h"

namespace csdsim::host {

struct Checkpoint {
  ModelConfig config;
  std::unique_ptr<WeightSource> weights;
};

/// Tells the weights of checkpoints apart: the bytes of the safetensors files, shards in the order of their names, and
/// their CRC-32 one after another (as zlib computes it).
struct WeightsDigest {
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  bool operator==(const WeightsDigest&) const = default;
};

/// Reads all weights of the checkpoint. UserError if there are none.
WeightsDigest weights_digest(const std::filesystem::path& directory);

/// Reads config.json and opens model.safetensors, or the shards of model.safetensors.index.json. UserError for
/// everything that is wrong with the files.
Checkpoint open_checkpoint(const std::filesystem::path& directory);

/// The tokens that end a text: eos_token_id of generation_config.json, else of config.json, a number or a list. None
/// where neither names one. UserError for anything else.
std::vector<TokenId> end_tokens(const std::filesystem::path& directory);

/// The tokenizer of a checkpoint: tokenizer.json, which transformers 5 reads, where it is byte-level BPE; else
/// tokenizer.model (sentencepiece), which must say the same as a tokenizer.json beside it; else vocab.json and
/// merges.txt. It may know more tokens than the model: the decoder refuses those when a text has them. UserError if it
/// is missing or broken.
Tokenizer open_tokenizer(const std::filesystem::path& directory);

}  // namespace csdsim::host
