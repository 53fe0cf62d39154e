// A task that only a token's far context solves: a planted sequence of random tokens has to be found again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host_runtime/core/model_config.h"

namespace csdsim::host {

/// The filler is text, a window a trial, `context` tokens long. Its tokens from context - distance on are replaced by a
/// fact: `cue` + `answer` different token ids, drawn from those that occur in the text. After the context, the fact is
/// fed once more through the decode path, token by token; recalled is every answer token that the model predicts
/// greedily from what comes before it. No token of the fact follows from the text or from the rest of the fact, so
/// that without the planted place about 1 of vocabulary is right. Any checkpoint that copies can do it.
struct RecallOptions {
  std::vector<std::uint32_t> distances;  ///< tokens from the first token of the fact to its repetition's first one
  std::uint32_t cue = 4;                 ///< tokens of the repetition that are given
  std::uint32_t answer = 12;             ///< tokens that are asked for
  std::uint64_t seed = 1;

  std::uint32_t fact() const { return cue + answer; }
};

struct RecallTrial {
  std::vector<TokenId> prompt;
  std::vector<TokenId> fact;
};

/// Trial `index` of a distance. The fact depends on (seed, index) only: it is the same at every distance.
/// UserError unless fact <= distance <= filler, cue >= 1, answer >= 1 and `ids` holds as many ids as a fact has.
RecallTrial recall_trial(std::span<const TokenId> filler, std::span<const TokenId> ids, const RecallOptions& options,
                         std::uint32_t distance, std::uint32_t index);

/// The different ids of a text, ascending.
std::vector<TokenId> distinct_ids(std::span<const TokenId> text);

}  // namespace csdsim::host
