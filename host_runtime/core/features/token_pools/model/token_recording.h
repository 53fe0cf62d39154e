// Recorded important tokens of consecutive decode steps, what they have in common from step to step, and their replay.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "host_runtime/core/plan/token_importance.h"

namespace csdsim::host {

/// The tokens that a method attended to in each decode step of some windows of text. All windows have the same layers,
/// lists and steps.
struct TokenRecording {
  using List = std::vector<std::uint32_t>;  ///< positions, ascending; not empty
  using Steps = std::vector<List>;

  std::uint32_t prefill = 0;                             ///< step i has a context of prefill + 1 + i tokens
  std::vector<std::vector<std::vector<Steps>>> windows;  ///< [window][layer][list]: one list per layer, or per KV head

  std::uint32_t context(std::size_t step) const { return prefill + 1 + static_cast<std::uint32_t>(step); }
  std::size_t layers() const { return windows.empty() ? 0 : windows[0].size(); }
  std::size_t lists() const { return layers() == 0 ? 0 : windows[0][0].size(); }
  std::size_t steps() const { return lists() == 0 ? 0 : windows[0][0][0].size(); }
};

/// How local the important tokens are. Means over windows, layers, lists and steps.
struct TokenStatistics {
  double share = 0;  ///< share of the context that is important
  /// Share of a step's important tokens that were important 1, 8 and 64 steps before. The current token and those that
  /// did not exist then count as not. 0 if there are no so many steps.
  double overlap[3] = {};
  double recent = 0;  ///< share of the important tokens that is within as many newest tokens of the context
  /// Share of the hits on tokens of the prefill that fall on the 10 %, 20 % and 50 % of them with the most hits.
  double hits[3] = {};
};
inline constexpr std::uint32_t kOverlapSteps[3] = {1, 8, 64};
inline constexpr double kHitShares[3] = {0.1, 0.2, 0.5};

/// Figures of one layer, or of all.
TokenStatistics statistics(const TokenRecording& recording, LayerId layer);
TokenStatistics statistics(const TokenRecording& recording);

/// Replays a recording of one list per layer. Sequence i has window i (modulo their number); a model with more layers
/// than the recording has its layers again from the first on. A step must have a context that was recorded, and may
/// come more than once.
class RecordedTokens final : public TokenImportance {
 public:
  /// UserError for a recording without steps, or with a list per KV head.
  explicit RecordedTokens(TokenRecording recording);
  bool has_lists_of_heads() const override { return false; }
  /// UserError for a context that was not recorded, and if the recorded list is more than one token longer or shorter
  /// than `count`. One token, the rounding of a share, is left out or added: the oldest important or the newest other.
  void next(SequenceId sequence, LayerId layer, std::uint32_t context, std::uint32_t count,
            std::vector<std::uint32_t>& positions) override;

 private:
  TokenRecording recording_;
};

}  // namespace csdsim::host
