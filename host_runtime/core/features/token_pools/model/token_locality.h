// A model of which tokens are important, with the locality of real attention.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "host_runtime/core/plan/token_importance.h"

namespace csdsim::host {

/// Constants of the model, the same for all layers and contexts. The defaults are fitted to a recording of llama-gqa-6m
/// with a fifth of the tokens important (docs/hillinfer_reproduction.md).
struct TokenLocalityParams {
  double recent = 0.514;  ///< recency: share of the important tokens among as many newest tokens, in (0, 1)
  /// Stable hits: how equal tokens are, above 0. The long-term shares of steps in which tokens are important follow
  /// Beta(mean * c, (1 - mean) * c). Large: every token is important equally often.
  double concentration = 3.88;
  double persistence = 0.263;  ///< probability that a token stays important, or not, without a new draw, in [0, 1)
  double drift = 0.042;        ///< churn: probability per step that a token's long-term share is drawn anew, in [0, 1)
};

/// Every token has a rank u that is drawn when it is appended, and again with the probability `drift` in each step. The
/// `count` newest tokens are important with the mean share `recent`, the older ones with the mean share that leaves
/// `count` important tokens in all; the long-term share of a token is the quantile u of the beta distribution around
/// its mean. In each step a token keeps its state with the probability `persistence`, and otherwise is important with
/// its long-term share. Then random tokens are drawn once more until exactly `count` are important. The current
/// token is always important. Layers and sequences are independent.
class TokenLocalityModel final : public TokenImportance {
 public:
  /// UserError for constants out of range.
  TokenLocalityModel(const TokenLocalityParams& params, std::uint64_t seed);
  void next(SequenceId sequence, LayerId layer, std::uint32_t context, std::uint32_t count,
            std::vector<std::uint32_t>& positions) override;

 private:
  /// Draws below it make a token important, by rank.
  using Thresholds = std::vector<std::uint32_t>;
  struct Shares {
    Thresholds recent, old;
  };
  struct State {
    Rng rng;
    std::vector<std::uint8_t> rank;       ///< u, by token
    std::vector<std::uint8_t> important;  ///< by token
    bool started = false;
  };
  const Shares& shares_of(std::uint32_t context, std::uint32_t count);
  State& state_of(SequenceId sequence, LayerId layer);
  void extend(State& state, std::uint32_t context);
  void correct(State& state, const Shares& shares, std::uint32_t found, std::uint32_t count) const;

  TokenLocalityParams params_;
  std::uint64_t seed_;
  std::uint32_t changing_ = 0;              ///< draws of 32 bits below it change the state
  std::map<std::uint32_t, Shares> shares_;  ///< by the important share of the context, in steps of 1/256
  std::map<std::pair<SequenceId, LayerId>, State> states_;
};

/// Products of the long-term shares of recent and older tokens: all that overlaps depend on.
struct ShareProducts {
  double recent = 0, old = 0;                             ///< means
  double recent_recent = 0, recent_old = 0, old_old = 0;  ///< means of products, of the same token
};
/// `share` of the context is important.
ShareProducts share_products(double share, double recent, double concentration);

/// Expected share of the important tokens that were important `steps` steps before, at a context of `context` tokens.
double expected_overlap(const ShareProducts& products, double persistence, double drift, double share, double context,
                        double steps);

}  // namespace csdsim::host
