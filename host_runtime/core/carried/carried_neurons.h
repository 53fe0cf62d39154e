// The feed-forward weights of a checkpoint as records on drives, in runs that carry data.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host_runtime/core/decoder.h"
#include "host_runtime/core/neurons/neuron_predictor.h"
#include "host_runtime/core/neurons/neuron_rows.h"
#include "host_runtime/core/planner/flash_neurons.h"
#include "host_runtime/core/weight_source.h"

namespace csdsim::host {

/// What a read of records brought: the data of each request.
struct ArrivedRecords {
  std::map<std::size_t, std::vector<std::byte>> requests;  ///< by their index in the operation
};

/// The matrix of the neurons of a layer that are in memory: FlashWeights::memory_rows() rows, each with the rows of all
/// matrices of a neuron.
struct NeuronRows {
  std::vector<std::byte> bytes;
};

/// Makes records of a checkpoint and computes with what came back from the drives, never with the checkpoint's own
/// bytes but for neurons that stay in memory. Every row that comes back is compared with the checkpoint.
class CarriedNeurons {
 public:
  /// Null `predictor`: the oracle. `source` is the checkpoint; where records are quantised, `decoder` has
  /// RoundedWeights of it. Both must outlive this. UserError for a checkpoint whose elements do not have 2 bytes.
  CarriedNeurons(const FlashWeights& weights, const Decoder& decoder, const WeightSource& source,
                 std::shared_ptr<const NeuronPredictor> predictor = {});

  const FlashWeights& weights() const { return weights_; }
  /// Null without a predictor.
  const FlashNeurons* neurons() const { return neurons_ ? &*neurons_ : nullptr; }

  /// The bytes of all records of a layer.
  void load_layer(LayerId layer, std::span<std::byte> bytes) const;
  std::optional<Work> resolve(const Operation& op) const;
  /// The neurons of a step of a layer are chosen, from what enters its feed-forward network.
  void select(LayerId layer, const Tensor& inputs);
  /// Moves rows within the matrix, as the latest step says.
  void delete_rows(LayerId layer, NeuronRows& rows) const;
  /// Copies rows that have arrived into the matrix.
  void insert_rows(LayerId layer, const ArrivedRecords& arrived, NeuronRows& rows);
  NeuronRows empty_rows() const;

  /// The layer's matrices with the neurons that are in memory, and zeros for the others.
  FeedForwardWeights in_memory(LayerId layer, const NeuronRows& rows) const;
  /// The layer's matrices with all neurons: the resident ones, and those whose records have arrived.
  FeedForwardWeights whole(LayerId layer, const ArrivedRecords& arrived);

  /// Rows that came back with other bytes than were written, and where the first one was.
  std::uint64_t wrong_rows() const { return wrong_rows_; }
  const std::string& first_wrong() const { return first_wrong_; }

 private:
  FeedForwardWeights loaded(LayerId layer, const NeuronRowSource::Matrices& matrices) const;
  void compare(LayerId layer, std::uint32_t neuron, std::uint32_t matrix, std::span<const std::byte> row);
  const RecordFormat& format() const { return weights_.directory().format(); }

  FlashWeights weights_;
  const Decoder& decoder_;
  NeuronRowSource rows_;
  std::shared_ptr<const NeuronPredictor> predictor_;
  std::optional<FlashNeurons> neurons_;
  std::uint64_t wrong_rows_ = 0;
  std::string first_wrong_;
};

}  // namespace csdsim::host
