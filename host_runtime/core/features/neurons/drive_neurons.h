// The neurons with which drives compute in a decode step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "host_runtime/core/features/neurons/flash_weights.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// The chosen neurons of each layer and mini-batch, for FlashWeights whose networks are computed in drives. None of
/// them comes into memory, so steps do not depend on one another.
class DriveNeurons {
 public:
  explicit DriveNeurons(const FlashWeights& weights) : weights_(weights) {}

  /// The next decode step of a layer, in which `active` neurons are chosen: ascending, over all tokens of the step.
  void step(LayerId layer, MiniBatch mini_batch, std::span<const std::uint32_t> active);
  /// The neurons of an operation on a drive, in the order of its list. InternalError before the first step.
  const std::vector<std::uint32_t>& of(const Operation& op) const;
  /// The work of feed_forward on a drive; nothing for operations that do not depend on the neurons.
  std::optional<Work> resolve(const Operation& op) const;

 private:
  using Parts = std::vector<std::vector<std::uint32_t>>;  ///< [part of the layer]

  FlashWeights weights_;
  std::map<std::pair<LayerId, MiniBatch>, Parts> latest_;
};

}  // namespace csdsim::host
