// Recorded neurons of consecutive tokens, the locality that they have, and their replay in timing runs.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "host_runtime/core/plan/neuron_activity.h"

namespace csdsim::host {

/// The neurons of each token of some stretches of text, by layer.
struct NeuronRecording {
  /// Neurons of one token in one layer, ascending.
  using Active = std::vector<std::uint32_t>;

  std::uint32_t neurons = 0;                                ///< number of neurons in a layer
  std::vector<std::vector<std::vector<Active>>> stretches;  ///< [stretch][layer][token]

  std::size_t layers() const { return stretches.empty() ? 0 : stretches[0].size(); }
};

/// s(1) to s(most) of one layer of one stretch: the mean share of the neurons that occur at least once in k consecutive
/// tokens, over all places of such a window in the stretch. Fewer values if the stretch has fewer tokens.
std::vector<double> active_within(std::span<const NeuronRecording::Active> tokens, std::uint32_t neurons,
                                  std::uint32_t most);

/// The mean of active_within() of a layer over stretches, and over layers. Empty if there is no stretch.
std::vector<double> active_within(const NeuronRecording& recording, LayerId layer, std::uint32_t most);
std::vector<double> active_within(const NeuronRecording& recording, std::uint32_t most);

/// Replays a recording. Sequence i starts with stretch i (modulo their number), and goes on with the following stretch
/// at the end of one. A model with more layers than the recording has its layers again from the first on.
class RecordedActivity final : public NeuronActivity {
 public:
  /// Throws UserError if the recording has no token.
  explicit RecordedActivity(NeuronRecording recording);
  void next(SequenceId sequence, LayerId layer, std::vector<std::uint32_t>& active) override;
  /// What follows a rejected token in the recording follows the marked one.
  void mark(SequenceId sequence, LayerId layer) override { marks_[{sequence, layer}] = places_.at({sequence, layer}); }
  void go_back(SequenceId sequence, LayerId layer) override {
    places_[{sequence, layer}] = marks_.at({sequence, layer});
  }

 private:
  NeuronRecording recording_;
  struct Position {
    std::size_t stretch = 0;
    std::size_t token = 0;
  };
  std::map<std::pair<SequenceId, LayerId>, Position> places_, marks_;
};

}  // namespace csdsim::host
