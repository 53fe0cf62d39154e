#include "host_runtime/core/eval/recall.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/rng.h"

namespace csdsim::host {

std::vector<TokenId> distinct_ids(std::span<const TokenId> text) {
  std::vector<TokenId> ids(text.begin(), text.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

RecallTrial recall_trial(std::span<const TokenId> filler, std::span<const TokenId> ids, const RecallOptions& options,
                         std::uint32_t distance, std::uint32_t index) {
  if (options.cue < 1 || options.answer < 1) throw UserError("recall: a fact needs a cue and an answer");
  if (distance < options.fact() || distance > filler.size()) {
    throw UserError(fmt::format("recall: distance {} is not from {} (the length of a fact) to {} (the prefill)",
                                distance, options.fact(), filler.size()));
  }
  if (ids.size() < options.fact()) {
    throw UserError(
        fmt::format("recall: the text has {} different tokens, a fact needs {}", ids.size(), options.fact()));
  }
  RecallTrial trial{{filler.begin(), filler.end()}, {ids.begin(), ids.end()}};
  Rng rng(counter_random(options.seed, index), "recall");
  // The start of a random permutation (Fisher, Yates).
  for (std::size_t i = 0; i < options.fact(); ++i) {
    std::swap(trial.fact[i], trial.fact[i + rng.below(trial.fact.size() - i)]);
  }
  trial.fact.resize(options.fact());
  std::copy(trial.fact.begin(), trial.fact.end(), trial.prompt.end() - static_cast<std::ptrdiff_t>(distance));
  return trial;
}

}  // namespace csdsim::host
