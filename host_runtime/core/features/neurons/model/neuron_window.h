// The sliding window over the tokens whose neurons stay in memory (LLM in a flash, section 3.1).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace csdsim::host {

/// For one layer: the neurons that were active for at least one of the last k tokens.
class NeuronWindow {
 public:
  /// What a token changes, each list ascending.
  struct Change {
    std::vector<std::uint32_t> load;  ///< active for this token, and not in the window before
    std::vector<std::uint32_t> drop;  ///< in the window before, and active for none of the last k tokens
  };

  /// Throws UserError for a window of 0 tokens.
  NeuronWindow(std::uint32_t neurons, std::uint32_t tokens);

  /// The neurons that are active for the next token, ascending without repetition. The result is valid until the next
  /// call. The cost is proportional to the neurons that enter and leave.
  const Change& step(std::span<const std::uint32_t> active);

  bool contains(std::uint32_t neuron) const { return uses_[neuron] > 0; }
  /// Neurons in the window.
  std::uint32_t size() const { return size_; }

 private:
  std::uint32_t tokens_;
  std::vector<std::uint32_t> uses_;                ///< [neuron] tokens of the window for which it is active
  std::deque<std::vector<std::uint32_t>> active_;  ///< active neurons of the last tokens, the oldest first
  std::uint32_t size_ = 0;
  Change change_;
};

}  // namespace csdsim::host
