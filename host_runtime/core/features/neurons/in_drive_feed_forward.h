// The end of a layer whose feed-forward network is computed by the drives that hold its weights.
#pragma once

#include <vector>

#include "host_runtime/core/features/neurons/flash_feed_forward.h"

namespace csdsim::host {

/// Decode: finish_attention, select_neurons, feed_forward on each drive that has neurons of the layer, and
/// merge_feed_forward of their sums on the GPU. The lists of neurons depend on data; DriveNeurons says them when the
/// operations start.
///
/// Prefill: as FlashFeedForward with all neurons. The records of a layer are read for each mini-batch.
///
/// Inputs and sums are in GPU memory, or with PlannerInputs::through_host in host memory, between which and the GPU
/// they are copied.
class InDriveFeedForward final : public FeedForwardPlan {
 public:
  /// Throws InternalError for weights without FlashOptions::in_drives.
  InDriveFeedForward(const FlashWeights& weights, const PlannerInputs& inputs);

  Bytes weights_in_blocks() const override { return weights_.in_blocks(); }
  std::vector<PlacedTensor> resident() const override { return prompt_.resident(); }
  std::vector<PlannedBlocks> blocks() const override { return prompt_.blocks(); }
  bool takes_mini_batches() const override { return true; }
  OperationId finish(OperationSink& sink, LayerEnd end) override;

 private:
  /// The work of a drive, without its neurons.
  NeuronWork work(std::uint64_t tokens) const;
  /// A copy between GPU and host, after `after`.
  static OperationId copy(OperationSink& sink, ResourceKind link, const OpTag& tag, const SizedTensor& tensor,
                          OperationId after);

  FlashWeights weights_;
  FlashFeedForward prompt_;
  bool through_host_;
};

}  // namespace csdsim::host
