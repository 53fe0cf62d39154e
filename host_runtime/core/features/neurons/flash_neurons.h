// The neurons of each layer that are in memory, and the work of operations that depends on them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "host_runtime/core/features/neurons/drive_neurons.h"
#include "host_runtime/core/features/neurons/flash_weights.h"
#include "host_runtime/core/features/neurons/model/neuron_memory.h"
#include "host_runtime/core/features/neurons/model/neuron_window.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// The changes of a decode step in the memory of a layer.
struct NeuronStep {
  std::vector<std::uint32_t> active;  ///< chosen for the step, ascending
  std::vector<RecordRead> reads;      ///< requests for the records that are not in memory
  NeuronMemory::Update update;        ///< update of the matrix in memory
  std::uint32_t kept = 0;             ///< neurons in memory before the new ones come
  Bytes read_bytes;                   ///< bytes of the requests, in whole blocks

  std::uint32_t in_memory() const { return kept + static_cast<std::uint32_t>(update.placed.size()); }
};

/// The windows and memories of all layers, for FlashWeights with a predictor. The feed-forward network of a step runs
/// over all neurons in memory, the active ones of earlier tokens of the window included. The prompt's tokens are
/// computed with all neurons and leave nothing in memory: windows start empty.
class FlashNeurons {
 public:
  /// Throws UserError for memory for no neuron.
  explicit FlashNeurons(const FlashWeights& weights);

  const FlashWeights& weights() const { return weights_; }
  /// The next decode step of a layer, in which `active` neurons are chosen: ascending, over all tokens of the step.
  /// Throws UserError if memory has no room for them.
  const NeuronStep& step(LayerId layer, std::span<const std::uint32_t> active);
  /// A step over several tokens of a sequence, some of which are rejected afterwards. The window continues with `kept`,
  /// the neurons of each token of which it is known by now that it stays: accepted draft tokens of the step before, and
  /// the first token of this one. What only other tokens need leaves with the next step, unless they join the window.
  const NeuronStep& step(LayerId layer, std::span<const std::uint32_t> active,
                         std::span<const std::vector<std::uint32_t>> kept);
  /// The latest step of a layer. InternalError before the first.
  const NeuronStep& latest(LayerId layer) const;
  /// Neurons that came into memory so far, over all layers.
  std::uint64_t loaded() const { return loaded_; }
  /// The rows of the neurons in memory.
  const NeuronMemory& memory(LayerId layer) const { return layers_.at(layer.value).memory; }

  /// The work of an operation of a decode step, as the latest step of its layer says; nothing for operations that do
  /// not depend on it.
  std::optional<Work> resolve(const Operation& op) const;

 private:
  struct Layer {
    NeuronMemory memory;
    std::optional<NeuronWindow> window = {};
    std::vector<std::uint32_t> passing = {};  ///< in memory and not in the window: of rejected tokens
    std::optional<NeuronStep> latest = {};
  };
  ComputeWork copies(std::size_t rows) const;

  FlashWeights weights_;
  std::vector<Layer> layers_;
  std::uint64_t loaded_ = 0;
};

/// Neurons of timing runs: a recording or the locality model says which are active, instead of data.
class ModelledNeurons {
 public:
  ModelledNeurons(const FlashWeights& weights, std::unique_ptr<NeuronActivity> activity);
  /// With the locality model of FlashOptions.
  ModelledNeurons(const FlashWeights& weights, std::uint64_t seed);

  /// From now on a step has one token, and draft tokens after it, of which some are accepted.
  void speculate(const Speculation& speculation, std::uint64_t seed);
  /// As OperationData::resolve().
  std::optional<Work> resolve(const Operation& op);
  /// The decode steps before `step` happen in no time, in `layers` layers of `sequences` sequences.
  void skip_to(std::uint32_t step, std::uint32_t layers, std::uint32_t sequences);
  /// The neurons in memory; null if the drives compute with the chosen ones.
  const FlashNeurons* neurons() const { return std::get_if<FlashNeurons>(&neurons_); }

 private:
  void next(LayerId layer, MiniBatch mini_batch, std::span<const SequenceId> sequences);
  /// Draft tokens of a sequence that are accepted in a step; the same in all layers.
  std::uint32_t accepted(std::uint32_t step, SequenceId sequence) const;

  std::variant<FlashNeurons, DriveNeurons> neurons_;
  std::unique_ptr<NeuronActivity> activity_;
  std::vector<std::uint32_t> steps_;  ///< [layer] decode steps of the first sequence so far
  Speculation speculation_;
  std::uint64_t seed_ = 0;
  std::vector<std::uint32_t> of_token_, active_;
  std::vector<std::vector<std::uint32_t>> kept_;  ///< by token that stays: over all sequences
  /// [layer] of the step before: neurons of accepted draft tokens, by token over all sequences
  std::vector<std::vector<std::vector<std::uint32_t>>> accepted_;
};

}  // namespace csdsim::host
