// The end of a layer whose feed-forward weights are in the block namespaces of drives (LLM in a flash).
#pragma once

#include <optional>
#include <vector>

#include "host_runtime/core/features/neurons/flash_weights.h"
#include "host_runtime/core/plan/feed_forward_plan.h"

namespace csdsim::host {

/// Tensors of FlashFeedForward.
namespace flash_tensors {
/// The records of a layer: on its drive, and in GPU memory the matrix of the neurons in memory.
TensorName records(LayerId layer);
/// Where records arrive in host or GPU memory. Each part of a layer has FlashFeedForward::kBuffers of them, used in
/// turn.
TensorName buffer(std::uint32_t index, std::uint32_t part = 0);
/// Where other weights of a layer, rows of embeddings, or the head arrive.
TensorName rest();
}  // namespace flash_tensors

/// Decode with predicted neurons: finish_attention, select_neurons, read_blocks of the records that are not in memory,
/// delete_records, insert_records, feed_forward over all neurons in memory. The sizes of all but the first two depend
/// on the neurons; FlashNeurons says them when the operations start.
///
/// Decode with all neurons, and every prefill: finish_attention, read_blocks of all records that do not stay in memory,
/// feed_forward.
///
/// Reads go to GPU memory, or with PlannerInputs::through_host to host memory and then over the GPU's link. Without
/// FlashOptions::overlap_flash, a read waits for the computation before it. With it, all records of a layer are read
/// while the layer before it is computed, and the neurons that are in memory are computed while others are read
/// (partial_feed_forward). Without either overlap, rows are deleted when the records have arrived.
class FlashFeedForward final : public FeedForwardPlan {
 public:
  static constexpr std::uint32_t kBuffers = 2;

  FlashFeedForward(const FlashWeights& weights, const PlannerInputs& inputs);

  Bytes weights_in_blocks() const override { return weights_.model().weight_bytes() - weights_.on_gpu(); }
  std::vector<PlacedTensor> resident() const override;
  std::vector<PlannedBlocks> blocks() const override;
  std::vector<OperationId> before(OperationSink& sink, const OpTag& tag,
                                  const std::vector<OperationId>& after) override;
  std::vector<OperationId> before_embedding(OperationSink& sink, const OpTag& tag, std::uint64_t tokens,
                                            const std::vector<OperationId>& after) override;
  OperationId finish(OperationSink& sink, LayerEnd end) override;

 private:
  using Ids = std::vector<OperationId>;

  std::uint32_t buffers() const { return weights_.options().overlap_flash && !weights_.predicts() ? kBuffers : 1; }
  Place read_memory() const { return through_host_ ? Place::host() : Place::gpu(); }
  /// Reads `extents` of a drive into a buffer, after its earlier reads, so that no more requests are in flight than
  /// there are threads, and copies them to the GPU if they pass through host memory. Returns the last operation.
  OperationId read(OperationSink& sink, const OpTag& tag, DriveIndex drive, std::vector<Extent> extents,
                   const TensorName& from, const SizedTensor& buffer, Ids deps);
  OperationId compute_all(OperationSink& sink, const LayerEnd& end, OperationId attended);
  OperationId compute_predicted(OperationSink& sink, const LayerEnd& end, OperationId attended);
  SizedTensor buffer(std::uint32_t index, std::uint32_t part = 0) const;
  SizedTensor rest() const;
  SizedTensor matrix(LayerId layer) const;

  FlashWeights weights_;
  bool through_host_;
  std::vector<std::optional<OperationId>> buffer_user_;  ///< [buffer] the latest operation that computes from it
  std::uint32_t next_buffer_ = 0;
  std::vector<std::optional<OperationId>> latest_read_;  ///< [drive]
  std::optional<OperationId> rest_user_;  ///< the latest operation that computes with flash_tensors::rest()
};

}  // namespace csdsim::host
