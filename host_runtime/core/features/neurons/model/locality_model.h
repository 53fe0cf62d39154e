// A model of which neurons are active, with the locality of real activations.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "host_runtime/core/plan/neuron_activity.h"

namespace csdsim::host {

/// Constants of the model, the same for all layers.
struct LocalityParams {
  double active = 0.1;  ///< mean share of the neurons that are active for a token, in (0, 1)
  /// How equal neurons are, above 0: their long-term shares follow Beta(active * c, (1 - active) * c). Large: every
  /// neuron is active equally often. Small: some are nearly always active, the others nearly never.
  double concentration = 1;
  double persistence = 0;  ///< probability that a neuron keeps its state for the next token, in [0, 1)
};

/// Every neuron i has a long-term share p_i. For each token it keeps its state with the probability `persistence`, and
/// otherwise is active with the probability p_i. So the tokens are a stationary Markov chain of two states per neuron.
/// Sequences have the same shares and independent states. The shares of a layer are equidistant quantiles of the beta
/// distribution in random order: their mean is that of the distribution.
class LocalityModel final : public NeuronActivity {
 public:
  /// Throws UserError for constants out of range.
  LocalityModel(const LocalityParams& params, std::uint32_t neurons, std::uint64_t seed);

  void next(SequenceId sequence, LayerId layer, std::vector<std::uint32_t>& active) override;
  void mark(SequenceId sequence, LayerId layer) override;
  void go_back(SequenceId sequence, LayerId layer) override;

  /// s(k): expected share of the neurons that are active for at least one of k consecutive tokens. The expected share
  /// that a window of k tokens loads per token is s(k + 1) - s(k). With several `sequences`: active in at least one of
  /// them, which is what a window of k steps of a batch holds.
  double active_within(std::uint32_t tokens, std::uint32_t sequences = 1) const;

 private:
  /// State of a layer and sequence.
  struct State {
    Rng rng;
    std::vector<std::uint8_t> active;  ///< 0 or 1, by neuron
    std::vector<std::uint8_t> marked = {};
  };
  /// Of a layer, by neuron.
  struct Shares {
    std::vector<double> share;        ///< of the tokens for which the neuron is active
    std::vector<std::uint64_t> draw;  ///< draws of 53 bits below it make the neuron active for the next token
  };
  const Shares& shares_of(LayerId layer);
  State& state_of(SequenceId sequence, LayerId layer);

  LocalityParams params_;
  std::uint32_t neurons_;
  std::uint64_t seed_;
  std::vector<double> quantiles_;
  std::map<LayerId, Shares> shares_;
  std::map<std::pair<SequenceId, LayerId>, State> states_;
};

}  // namespace csdsim::host
