#include "host_runtime/core/features/token_pools/model/token_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace csdsim::host {
namespace {

/// Sums over steps of some lists, of which the statistics are means.
struct StatisticSums {
  double share = 0, recent = 0, steps = 0;
  double overlap[3] = {}, overlap_steps[3] = {};
  double hits[3] = {}, lists = 0;
};

std::size_t common(const TokenRecording::List& a, const TokenRecording::List& b) {
  std::size_t count = 0;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    count += *x == *y;
    if (*x < *y)
      ++x;
    else if (*y < *x)
      ++y;
    else
      ++x, ++y;
  }
  return count;
}

/// The share of the hits that fall on the given shares of the tokens, those with the most hits first.
void add_hits(const TokenRecording::Steps& steps, std::uint32_t prefill, StatisticSums& sums) {
  std::vector<double> hits(prefill);
  for (const TokenRecording::List& list : steps)
    for (const std::uint32_t token : list)
      if (token < prefill) ++hits[token];
  std::sort(hits.rbegin(), hits.rend());
  const double all = std::accumulate(hits.begin(), hits.end(), 0.0);
  if (all == 0) return;
  ++sums.lists;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto best = static_cast<std::ptrdiff_t>(kHitShares[i] * prefill + 0.5);
    sums.hits[i] += std::accumulate(hits.begin(), hits.begin() + best, 0.0) / all;
  }
}

void add_steps(const TokenRecording& recording, const TokenRecording::Steps& steps, StatisticSums& sums) {
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const TokenRecording::List& list = steps[step];
    const auto size = static_cast<double>(list.size());
    const std::uint32_t context = recording.context(step);
    const auto first_recent = context - static_cast<std::uint32_t>(list.size());
    ++sums.steps;
    sums.share += size / context;
    sums.recent += static_cast<double>(list.end() - std::lower_bound(list.begin(), list.end(), first_recent)) / size;
    for (std::size_t i = 0; i < 3; ++i) {
      if (step < kOverlapSteps[i]) continue;
      sums.overlap[i] += static_cast<double>(common(list, steps[step - kOverlapSteps[i]])) / size;
      ++sums.overlap_steps[i];
    }
  }
  add_hits(steps, recording.prefill, sums);
}

TokenStatistics means(const StatisticSums& sums) {
  if (sums.steps == 0) throw UserError("a recording of tokens without steps has no statistics");
  TokenStatistics result{.share = sums.share / sums.steps, .recent = sums.recent / sums.steps};
  for (std::size_t i = 0; i < 3; ++i) {
    if (sums.overlap_steps[i] > 0) result.overlap[i] = sums.overlap[i] / sums.overlap_steps[i];
    if (sums.lists > 0) result.hits[i] = sums.hits[i] / sums.lists;
  }
  return result;
}

}  // namespace

TokenStatistics statistics(const TokenRecording& recording, LayerId layer) {
  StatisticSums sums;
  for (const auto& window : recording.windows)
    for (const TokenRecording::Steps& steps : window.at(layer.value)) add_steps(recording, steps, sums);
  return means(sums);
}

TokenStatistics statistics(const TokenRecording& recording) {
  StatisticSums sums;
  for (const auto& window : recording.windows)
    for (const auto& layer : window)
      for (const TokenRecording::Steps& steps : layer) add_steps(recording, steps, sums);
  return means(sums);
}

RecordedTokens::RecordedTokens(TokenRecording recording) : recording_(std::move(recording)) {
  if (recording_.steps() == 0) throw UserError("a recording of tokens without steps cannot be replayed");
  if (recording_.lists() != 1)
    throw UserError(
        fmt::format("the recording has {} lists of tokens per layer; a replay takes one: record a method "
                    "with one list per layer (int8, int4, fp16, ...)",
                    recording_.lists()));
}

void RecordedTokens::next(SequenceId sequence, LayerId layer, std::uint32_t context, std::uint32_t count,
                          std::vector<std::uint32_t>& positions) {
  if (context < recording_.context(0) || context >= recording_.context(recording_.steps()))
    throw UserError(fmt::format("a context of {} tokens was not recorded: the recording has {} to {}", context,
                                recording_.context(0), recording_.context(recording_.steps()) - 1));
  const auto& window = recording_.windows[sequence.value % recording_.windows.size()];
  positions = window[layer.value % window.size()][0][context - recording_.context(0)];
  if (positions.size() > std::size_t{count} + 1 || count > positions.size() + 1)
    throw UserError(fmt::format("{} important tokens of a context of {} are wanted; {} were recorded", count, context,
                                positions.size()));
  if (positions.size() > count) positions.erase(positions.begin());
  if (positions.size() == count) return;
  // The newest position that is not in the list.
  std::size_t at = positions.size();
  std::uint32_t missing = context - 1;
  while (at > 0 && positions[at - 1] == missing) --at, --missing;
  positions.insert(positions.begin() + static_cast<std::ptrdiff_t>(at), missing);
}

}  // namespace csdsim::host
