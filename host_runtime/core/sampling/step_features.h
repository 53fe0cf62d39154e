// The strata of sampled runs: decode steps of a batch that do more than the plain work.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "host_runtime/core/plan/kv_division.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

/// Token-flush: some sequence's group of n tokens fills a page. Window-flush: some sequence's embedding window of T
/// tokens fills, or is written before it is full. Flushes drain in the background, so the steps right after one are
/// strata of their own. A step belongs to the last of the strata that apply.
enum class Stratum : std::uint8_t { plain, after_token_flush, token_flush, after_window_flush, window_flush };
inline constexpr std::size_t kStrata = 5;

/// Page arithmetic of the KV cache in the drive (docs/algorithms.md, Layouts).
struct KvGrouping {
  std::uint32_t page_tokens = 16;   ///< n, tokens per token page
  std::uint32_t window_tokens = 0;  ///< T, tokens a component-major run; 0 where K is kept token-major only
  /// How many tokens of a context are kept component-major; grows with the context. Unset: whole multiples of
  /// window_tokens.
  std::function<std::uint64_t(std::uint64_t tokens)> windowed = {};
  /// Share of an engine that a head takes, by its tokens in the drive and those of its sequence: 1 over the number of
  /// such heads that the engine works on at a time. Unset: the same for all.
  std::function<double(std::uint32_t tokens, std::uint32_t context)> engine_share = {};
  /// Newest tokens that the attention method always takes, by the context. As far as they are in full groups, their
  /// pages are read whatever else is chosen. Unset: none.
  std::function<std::uint32_t(std::uint32_t context)> newest = {};
  /// Decode steps, ascending, from which on the cost of a step follows another law: K and V exceed a page cache. Steps
  /// before and after are estimated apart.
  std::vector<std::uint32_t> breaks = {};
  /// Where the tokens are. Groups and windows are those of each drive's own tokens.
  KvDivision division = {};
};

/// Assumed number of steps for which a flush continues in the background.
struct FlushSpill {
  std::uint32_t token = 1;
  std::uint32_t window = 4;
};

/// Work counts of a decode step, means over the sequences of the batch. The context includes the current token. Where
/// the tokens of a sequence are divided over drives, its counts are sums over the drives. Where shares of them are
/// elsewhere (KvDivision::by_shares()), `windowed` counts those; a token flush is a group that is written back and
/// fills a page of a drive, which programs it, and a window flush any other one.
struct StepFeatures {
  double flushed = 0;               ///< tokens in full token groups
  double windowed = 0;              ///< tokens in embedding windows that are written
  double tail = 0;                  ///< tokens in no full group
  double engine_share = 0;          ///< share of the engine that a head takes: KvGrouping::engine_share
  double newest_groups = 0;         ///< full groups that the newest tokens reach into: KvGrouping::newest
  double token_flushes = 0;         ///< sequences whose token group fills in this step
  double recent_token_flushes = 0;  ///< sequence-steps of token flushes within the spill before this step
  double window_flushes = 0;        ///< sequences that write an embedding window in this step
  double recent_window_flushes = 0;
  std::uint32_t segment = 0;  ///< number of breaks up to the step

  Stratum stratum() const {
    if (window_flushes > 0) return Stratum::window_flush;
    if (recent_window_flushes > 0) return Stratum::after_window_flush;
    if (token_flushes > 0) return Stratum::token_flush;
    return recent_token_flushes > 0 ? Stratum::after_token_flush : Stratum::plain;
  }
};

/// One entry per decode step of the workload.
std::vector<StepFeatures> step_features(const BatchLengths& workload, const KvGrouping& grouping,
                                        const FlushSpill& spill);

}  // namespace csdsim::host
