// Records the logits by which a run chose its tokens: probabilities for the result, or all of them in a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "host_runtime/core/model/model_config.h"

namespace csdsim::experiment {

class TokenRecord {
 public:
  /// With `likeliest`: the logarithm of the probability of each token, and of so many of the likeliest. With
  /// `keep_logits`: all logits. UserError if the vocabulary has fewer tokens.
  TokenRecord(std::size_t sequences, std::uint32_t vocabulary, std::optional<std::uint32_t> likeliest,
              bool keep_logits);

  /// Adds the next token of a sequence.
  void add(std::uint32_t sequence, std::span<const float> logits, host::TokenId chosen);
  /// Forgets the tokens of a sequence after the first `tokens`.
  void keep(std::uint32_t sequence, std::size_t tokens);

  /// [sequence][new token]: {token, logprob, top: [[token, logprob], ...]}, natural logarithms, before temperature.
  /// Null unless `likeliest` was given.
  nlohmann::ordered_json logprobs() const;
  /// Tensor logits.I is [new tokens][vocabulary] of sequence I. UserError if the file cannot be written.
  void write_logits(const std::filesystem::path& path) const;

 private:
  std::uint32_t vocabulary_;
  std::optional<std::uint32_t> likeliest_;
  bool keep_logits_;
  std::vector<std::vector<nlohmann::ordered_json>> logprobs_;
  std::vector<std::vector<float>> logits_;
};

/// Ends every text with its first end token, in `record` too unless it is null. Returns how many had one. UserError if
/// the checkpoint names none.
std::size_t end_texts(std::vector<std::vector<host::TokenId>>& texts, const std::filesystem::path& checkpoint,
                      TokenRecord* record);

}  // namespace csdsim::experiment
