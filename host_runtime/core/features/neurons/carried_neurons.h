// The feed-forward weights of a checkpoint as records on drives, in runs that carry data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fp16.h"
#include "host_runtime/core/carried/carried_feature.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/features/neurons/flash_neurons.h"
#include "host_runtime/core/features/neurons/model/neuron_predictor.h"
#include "host_runtime/core/features/neurons/model/neuron_rows.h"
#include "host_runtime/core/model/weight_source.h"

namespace csdsim::host {

/// The result of a read of records: the data of each request.
struct ArrivedRecords {
  std::map<std::size_t, std::vector<std::byte>> requests;  ///< by their index in the operation
};

/// The matrix of the neurons of a layer that are in memory: FlashWeights::memory_rows() rows, each with the rows of all
/// matrices of a neuron.
struct NeuronRows {
  std::vector<std::byte> bytes;
};

/// Makes records of a checkpoint and computes with what came back from the drives, never with the checkpoint's own
/// bytes but for neurons that stay in memory. Every row that comes back is compared with the checkpoint. Where drives
/// compute, every sum that comes back is compared with that of the checkpoint's rows.
class CarriedNeurons {
 public:
  /// Null `predictor`: the oracle. `source` is the checkpoint; where records are quantised, `decoder` has
  /// RoundedWeights of it. Both must outlive this. UserError for a checkpoint whose elements do not have 2 bytes.
  CarriedNeurons(const FlashWeights& weights, const Decoder& decoder, const WeightSource& source,
                 std::shared_ptr<const NeuronPredictor> predictor = {});

  const FlashWeights& weights() const { return weights_; }
  /// Null without a predictor.
  const FlashNeurons* neurons() const { return neurons_ ? &*neurons_ : nullptr; }

  /// With what the sums of drives are checked; without, they are not.
  void set_sums(NeuronSums sums) { sums_ = std::move(sums); }

  /// The bytes of all records of a layer on a drive.
  void load_layer(LayerId layer, DriveIndex drive, std::span<std::byte> bytes) const;
  std::optional<Work> resolve(const Operation& op) const;
  /// The neurons of a step of a layer are chosen, from what enters its feed-forward network: a row for each token of
  /// `sequences`. Tokens after the first of a sequence join the window when they have been accepted: `accepted` tokens
  /// of the step before, by place in `sequences`.
  void select(LayerId layer, MiniBatch mini_batch, const Tensor& inputs, std::span<const StepSequence> sequences,
              std::span<const std::uint32_t> accepted);
  /// Moves rows within the matrix, as the latest step says.
  void delete_rows(LayerId layer, NeuronRows& rows) const;
  /// Copies rows that have arrived into the matrix.
  void insert_rows(LayerId layer, const ArrivedRecords& arrived, NeuronRows& rows);
  NeuronRows empty_rows() const;

  /// The layer's matrices with the neurons that are in memory, and zeros for the others.
  FeedForwardWeights in_memory(LayerId layer, const NeuronRows& rows) const;
  /// The layer's matrices with all neurons: the resident ones, and those whose records have arrived, by part of the
  /// layer.
  FeedForwardWeights whole(LayerId layer, const std::vector<const ArrivedRecords*>& arrived);

  /// Biases of the neurons of a drive's operation, from neuron `first` of its list on.
  void load_biases(const Operation& op, std::uint32_t first, std::span<Half> bias) const;
  /// Compares what a drive made of x with the sum over the checkpoint's rows.
  void check_sum(const Operation& op, std::span<const Half> x, std::span<const float> y);
  /// The bias of the down projection, or empty.
  std::vector<float> output_bias(LayerId layer) const;

  /// Sums of drives that are not those of the checkpoint.
  std::uint64_t wrong_sums() const { return wrong_sums_; }
  /// Rows that came back with other bytes than were written, and where the first wrong row or sum was.
  std::uint64_t wrong_rows() const { return wrong_rows_; }
  const std::string& first_wrong() const { return first_wrong_; }

 private:
  /// Biases of a layer: of up, and of down.
  struct LayerBiases {
    std::vector<float> up, down;
  };

  /// UserError for records that drives cannot compute with.
  void check_fp16(const WeightSource& source) const;
  FeedForwardWeights loaded(LayerId layer, const NeuronRowSource::Matrices& matrices) const;
  void compare(LayerId layer, std::uint32_t neuron, std::uint32_t matrix, std::span<const std::byte> row);
  void found_wrong(std::uint64_t& count, std::string where);
  const RecordFormat& format() const { return weights_.directory().format(); }

  FlashWeights weights_;
  const Decoder& decoder_;
  NeuronRowSource rows_;
  std::shared_ptr<const NeuronPredictor> predictor_;
  std::vector<LayerBiases> biases_;        ///< by layer; empty without
  std::optional<FlashNeurons> neurons_;    ///< with a predictor: in memory,
  std::optional<DriveNeurons> in_drives_;  ///< or in the drives
  /// [layer][sequence]: active neurons of each token of the draft that was verified last.
  std::vector<std::map<SequenceId, std::vector<std::vector<std::uint32_t>>>> drafted_;
  NeuronSums sums_;
  std::uint64_t wrong_rows_ = 0, wrong_sums_ = 0;
  std::string first_wrong_;
};

}  // namespace csdsim::host
