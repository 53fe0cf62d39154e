#include "host_runtime/core/eval/recall.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"

namespace csdsim::host {

std::vector<TokenId> recall_fact(std::span<const TokenId> text, std::size_t first, std::uint32_t filler,
                                 const RecallOptions& options, std::uint32_t index) {
  if (options.cue < 1 || options.answer < 1) throw UserError("recall: a fact needs a cue and an answer");
  const std::size_t length = options.fact();
  for (const std::uint32_t distance : options.distances) {
    if (distance < length || distance > filler) {
      throw UserError(fmt::format("recall: distance {} is not from {} (the length of a fact) to {} (the prefill)",
                                  distance, length, filler));
    }
  }
  // Starts before the filler and after it.
  const std::size_t before = first >= length ? first - length + 1 : 0;
  const std::size_t end = first + filler;
  const std::size_t after = text.size() >= end + length ? text.size() - end - length + 1 : 0;
  if (before + after == 0) {
    throw UserError(fmt::format("recall: the text has no {} tokens outside window {} to plant in it", length, index));
  }
  Rng rng(counter_random(options.seed, index), "recall");
  const std::size_t draw = rng.below(before + after);
  const std::span<const TokenId> fact = text.subspan(draw < before ? draw : end + draw - before, length);
  return {fact.begin(), fact.end()};
}

std::vector<TokenId> plant(std::span<const TokenId> filler, std::span<const TokenId> fact, std::uint32_t distance) {
  std::vector<TokenId> prompt(filler.begin(), filler.end());
  std::copy(fact.begin(), fact.end(), prompt.end() - static_cast<std::ptrdiff_t>(distance));
  return prompt;
}

}  // namespace csdsim::host
