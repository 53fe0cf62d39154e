// Which decode steps of a batch do more than the plain work: the strata of sampled runs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "host_runtime/core/planner/planner.h"

namespace csdsim::host {

/// Token-flush: some sequence's group of n tokens fills a page. Window-flush: some sequence's embedding window of T
/// tokens fills. A step that is both counts as window-flush.
enum class Stratum : std::uint8_t { plain, token_flush, window_flush };
inline constexpr std::size_t kStrata = 3;
constexpr std::array<std::string_view, kStrata> kStratumNames{"plain", "token-flush", "window-flush"};

/// Page arithmetic of the KV cache in the drive (reference/algorithms.md, 3.2).
struct KvGrouping {
  std::uint32_t page_tokens = 16;   ///< n, tokens a token page
  std::uint32_t window_tokens = 0;  ///< T, tokens a component-major run; 0 where K is kept token-major only
};

/// Work counts of a decode step, means over the sequences of the batch. The context includes the current token.
struct StepFeatures {
  double flushed = 0;         ///< tokens in full token groups
  double windowed = 0;        ///< tokens in full embedding windows
  double tail = 0;            ///< tokens in no full group
  double token_flushes = 0;   ///< sequences whose token group fills in this step
  double window_flushes = 0;  ///< sequences whose embedding window fills in this step
  Stratum stratum() const {
    if (window_flushes > 0) return Stratum::window_flush;
    return token_flushes > 0 ? Stratum::token_flush : Stratum::plain;
  }
};

/// One entry a decode step of the workload.
std::vector<StepFeatures> step_features(const GenerationWorkload& workload, const KvGrouping& grouping);

}  // namespace csdsim::host
