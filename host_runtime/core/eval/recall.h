// A task that needs distant context: finding a planted span of text again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

/// One trial per window. The filler is the part of the window that is prefilled. A fact is a span of the text outside
/// it, drawn from the seed, `cue` + `answer` tokens long; it replaces the filler's tokens from `distance` before its
/// end on. After the prefill the fact is fed once more through the decode path, by teacher forcing. The task asks for
/// those tokens of the answer that dense attention does not predict greedily when nothing was planted: they follow
/// neither from the filler nor from the rest of the fact. A token counts as recalled if the method predicts it
/// greedily.
struct RecallOptions {
  std::vector<std::uint32_t> distances;  ///< tokens from the first token of the fact to its repetition's first one
  std::uint32_t cue = 8;                 ///< first tokens of the repetition, which the task does not ask for
  std::uint32_t answer = 24;
  std::uint64_t seed = 1;

  std::uint32_t fact() const { return cue + answer; }
};

/// The fact of window `index`, whose filler is text [first, first + filler). UserError unless cue and answer are at
/// least 1, every distance is from fact() to `filler`, and the text outside the filler has room.
std::vector<TokenId> recall_fact(std::span<const TokenId> text, std::size_t first, std::uint32_t filler,
                                 const RecallOptions& options, std::uint32_t index);

/// The filler with the fact planted.
std::vector<TokenId> plant(std::span<const TokenId> filler, std::span<const TokenId> fact, std::uint32_t distance);

}  // namespace csdsim::host
