// Weights in the block namespaces of drives: where they are, what a step needs of them, and how they are read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ratio.h"
#include "contracts/row_quantisation.h"
#include "host_runtime/core/features/neurons/model/locality_model.h"
#include "host_runtime/core/features/neurons/model/record_directory.h"
#include "host_runtime/core/model/model_shape.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

/// The neurons that a decode step reads from drives.
enum class NeuronReads : std::uint8_t {
  all,       ///< all that do not stay in memory
  predicted  ///< those that a predictor chooses
};

/// The division of weights among several drives.
enum class NeuronDivision : std::uint8_t {
  layers,  ///< layer l is on drive l modulo the drives
  neurons  ///< each drive has a part of every layer: neuron n is on drive n modulo the drives
};

/// The choice of neurons in runs that carry data: those that really fire, or those of the checkpoint's predictor.
enum class PredictorKind : std::uint8_t { oracle, trained };

/// Inner dimension of the predictor of a layer where nothing says another.
inline constexpr std::uint32_t kPredictorRank = 128;

/// A system's options for weights in flash. Sizes of the model are separate.
struct FlashOptions {
  RecordLayout layout = RecordLayout::bundled;
  bool aligned = true;                ///< see RecordFormat
  RowQuantisation quantisation = {};  ///< quantisation of the records, on drives and in memory
  NeuronReads choice = NeuronReads::predicted;
  std::uint32_t window = 5;  ///< tokens whose neurons stay in memory; 0: no neuron does. With `predicted`.
  /// Share of all weights that is in memory for the whole run: attention and embeddings first, then with `all` neurons.
  Ratio resident_share{1, 1};
  /// At least attention and embeddings are in memory, whatever resident_share says.
  bool attention_resident = false;
  Ratio memory_share{1, 4};     ///< neurons of a layer that memory has room for. With `predicted`.
  std::optional<Bytes> memory;  ///< the same as bytes for all layers
  PredictorKind predictor = PredictorKind::oracle;
  /// Rank for all layers, or of each one. Empty: PlannerInputs::predictor_rank, or else kPredictorRank.
  std::vector<std::uint32_t> predictor_rank;
  Ratio threshold{1, 2};         ///< threshold of the trained predictor: neurons with a higher score are read
  std::uint32_t threads = 32;    ///< most requests in flight per drive
  Bytes chunk = Bytes::kib(32);  ///< most bytes of a request
  bool overlap_flash = false;    ///< reads overlap with computation
  bool overlap_memory = false;   ///< rows are deleted while records are read
  /// The drives compute with the chosen neurons: none comes into memory. With `predicted`.
  bool in_drives = false;
  NeuronDivision division = NeuronDivision::layers;  ///< neurons: with `predicted`
  LocalityParams locality;                           ///< locality of active neurons in timing runs
};

/// The weights of a model in the block namespaces of `drives` drives, which divide layers or neurons. A layer has
/// parts(): one, or with NeuronDivision::neurons one for each drive. A
/// namespace holds the records of the feed-forward networks of its layers (RecordDirectory), those of neurons that stay
/// in memory included. Behind them are the other weights of the layers that are not in memory, layer after layer. On
/// drive 0 three more parts follow: the language-model head, the token table (unless it is the head), and the position
/// table. The other weights are in GPU memory: attention, embeddings, biases, predictors.
class FlashWeights {
 public:
  /// Throws InternalError for sizes of zero.
  FlashWeights(const FlashOptions& options, const PlannerInputs& inputs);

  const FlashOptions& options() const { return options_; }
  const ModelShape& model() const { return model_; }
  const RecordDirectory& directory() const { return directory_; }
  std::uint32_t drives() const { return drives_; }
  bool predicts() const { return options_.choice == NeuronReads::predicted; }

  /// The drive of a layer, or of a part of its neurons.
  DriveIndex drive_of(LayerId layer, std::uint32_t part = 0) const {
    return DriveIndex{divides_neurons() ? part : layer.value % drives_};
  }
  /// The layer's number among those of its drive.
  LayerId on_drive(LayerId layer) const { return divides_neurons() ? layer : LayerId{layer.value / drives_}; }
  bool divides_neurons() const { return options_.division == NeuronDivision::neurons; }
  /// Parts into which the neurons of a layer are divided.
  std::uint32_t parts() const { return divides_neurons() ? drives_ : 1; }
  /// Neurons of a part. The i-th of them is neuron i * parts() + part of the layer.
  std::uint32_t neurons_of(std::uint32_t part) const { return (model_.ffn - part + parts() - 1) / parts(); }
  /// First byte of a row of a neuron of the layer, from the start of its drive's namespace.
  Bytes address(LayerId layer, std::uint32_t neuron, std::uint32_t matrix) const {
    return directory_.address(on_drive(layer), neuron / parts(), matrix);
  }

  /// Neurons [0, resident) of each layer stay in GPU memory.
  std::uint32_t resident_neurons() const { return resident_neurons_; }
  /// Rows per layer in which neurons of the window stay; 0 without a predictor.
  std::uint32_t memory_rows() const { return memory_rows_; }
  /// Bytes of a row: all matrices of a neuron.
  Bytes row() const { return directory_.format().neuron(); }

  /// Bytes of a layer that each step reads apart from feed-forward matrices.
  Bytes layer_rest() const { return layer_rest_; }
  /// Bytes of embeddings and head that are in flash, and those of the head, which each step reads whole.
  Bytes tables() const { return tables_; }
  Bytes head() const { return head_; }
  Extent rest_of(LayerId layer) const;
  Extent table_blocks() const;
  Extent head_blocks() const;
  /// Extents of the rows of the token and the position table that `tokens` tokens look up, in ascending order. Which
  /// rows these are depends on the tokens; here they are spread evenly over the tables.
  std::vector<Extent> looked_up(std::uint64_t tokens) const;

  /// All weights that are not in GPU memory, and those that are there for the whole run, without predictors.
  Bytes in_blocks() const;
  /// All weights but the matrices of the feed-forward networks.
  Bytes others() const;
  Bytes on_gpu() const;
  /// The network of a layer over `neurons` of its neurons, whose records are multiplied as they are.
  ComputeWork feed_forward(std::uint64_t tokens, std::uint64_t neurons) const;
  /// Blocks that hold data on a drive.
  std::uint64_t blocks(DriveIndex drive) const;
  /// True if a trained predictor chooses the neurons.
  bool asks_trained() const { return predicts() && options_.predictor == PredictorKind::trained; }
  /// One for all layers, or one per layer.
  const std::vector<std::uint32_t>& predictor_ranks() const { return predictor_rank_; }
  std::uint32_t predictor_rank(LayerId layer) const;
  /// Bytes of the predictors of all layers; 0 without.
  Bytes predictors() const;
  /// True if a step reads and computes the same in all layers, apart from which neurons are active, and nothing outside
  /// of them: some of the layers then stand for all.
  bool layers_alike() const;
  /// Memory for neurons of the windows, over all layers.
  Bytes window_memory() const { return row() * memory_rows_ * model_.layers; }
  /// The largest read of a part of a layer, in whole blocks: all records of the neurons that do not stay in memory.
  Bytes layer_buffer() const;
  /// Extents of the records of neurons [resident, neurons_of(part)) of a part of a layer.
  std::vector<Extent> all_records(LayerId layer, std::uint32_t part = 0) const;

 private:
  std::uint64_t blocks_of(Bytes bytes) const;
  /// A row of the token and of the position table.
  Bytes table_row() const;

  FlashOptions options_;
  ModelShape model_;
  std::uint32_t drives_;
  RecordDirectory directory_;
  std::uint32_t resident_neurons_ = 0;
  std::uint32_t memory_rows_ = 0;
  std::vector<std::uint32_t> predictor_rank_;  ///< one, or one per layer
  Bytes layer_rest_;
  Bytes tables_;
  Bytes head_;
  double in_flash_ = 0;  ///< share of the weights outside the feed-forward networks that is in flash
};

}  // namespace csdsim::host
