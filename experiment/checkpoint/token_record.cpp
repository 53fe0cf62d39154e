#include "experiment/checkpoint/token_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/checkpoint/safetensors_writer.h"
#include "host_runtime/core/decoder/generation.h"

namespace csdsim::experiment {

using host::TokenId;
using nlohmann::ordered_json;

TokenRecord::TokenRecord(std::size_t sequences, std::uint32_t vocabulary, std::optional<std::uint32_t> likeliest,
                         bool keep_logits)
    : vocabulary_(vocabulary),
      likeliest_(likeliest),
      keep_logits_(keep_logits),
      logprobs_(sequences),
      logits_(sequences) {
  if (likeliest.value_or(0) > vocabulary)
    throw UserError(fmt::format("--logprobs: {} tokens of a vocabulary of {}", *likeliest, vocabulary));
}

void TokenRecord::add(std::uint32_t sequence, std::span<const float> logits, TokenId chosen) {
  if (keep_logits_) logits_.at(sequence).insert(logits_[sequence].end(), logits.begin(), logits.end());
  if (!likeliest_) return;
  const double of_chosen = -host::negative_log_likelihood(logits, chosen);
  const double offset = of_chosen - double{logits[chosen.value]};  // offset of every token
  std::vector<std::uint32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0U);
  std::partial_sort(ids.begin(), ids.begin() + *likeliest_, ids.end(), [&](std::uint32_t a, std::uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  ordered_json top = ordered_json::array();
  for (std::uint32_t i = 0; i < *likeliest_; ++i)
    top.push_back(ordered_json::array({ids[i], double{logits[ids[i]]} + offset}));
  logprobs_.at(sequence).push_back({{"token", chosen.value}, {"logprob", of_chosen}, {"top", std::move(top)}});
}

void TokenRecord::keep(std::uint32_t sequence, std::size_t tokens) {
  if (keep_logits_) logits_.at(sequence).resize(tokens * vocabulary_);
  if (likeliest_) logprobs_.at(sequence).resize(tokens);
}

ordered_json TokenRecord::logprobs() const { return likeliest_ ? ordered_json(logprobs_) : ordered_json(nullptr); }

void TokenRecord::write_logits(const std::filesystem::path& path) const {
  std::vector<host::FloatTensor> tensors;
  for (std::size_t i = 0; i < logits_.size(); ++i)
    tensors.push_back({fmt::format("logits.{}", i), {logits_[i].size() / vocabulary_, vocabulary_}, logits_[i]});
  host::write_safetensors(path, tensors);
}

std::size_t end_texts(std::vector<std::vector<TokenId>>& texts, const std::filesystem::path& checkpoint,
                      TokenRecord* record) {
  const std::vector<TokenId> ends = host::end_tokens(checkpoint);
  if (ends.empty())
    throw UserError(fmt::format("{}: --stop-at-eos: neither generation_config.json nor config.json has an eos_token_id",
                                checkpoint.string()));
  std::size_t ended = 0;
  for (std::uint32_t i = 0; i < texts.size(); ++i) {
    const auto end = std::ranges::find_first_of(texts[i], ends);
    if (end == texts[i].end()) continue;
    ++ended;
    texts[i].erase(end + 1, texts[i].end());
    if (record != nullptr) record->keep(i, texts[i].size());
  }
  return ended;
}

}  // namespace csdsim::experiment
