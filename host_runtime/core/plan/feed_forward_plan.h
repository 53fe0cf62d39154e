// Plans the feed-forward part of a layer whose weights are not all in the memory of the processor.
#pragma once

#include <vector>

#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

/// A layer of a mini-batch whose attention outputs are at the GPU.
struct LayerEnd {
  OpTag tag;
  std::uint64_t tokens = 0;        ///< that the step adds, over all sequences
  Resource gpu;                    ///< GPU that has the mini-batch
  std::vector<OperationId> ready;  ///< operations after which the attention outputs are there
  TensorUses uses;                 ///< reads and drops the attention outputs, reads and writes the hidden states
  SizedTensor hidden;              ///< the hidden states
};

/// Takes the place of finish_layer in the plan of a LayerPlanner. It may keep operations over steps.
class FeedForwardPlan {
 public:
  virtual ~FeedForwardPlan() = default;

  /// Parameters of the model that are in the block namespaces of drives and not in GPU memory.
  virtual Bytes weights_in_blocks() const = 0;
  /// Tensors that exist before the first step, apart from the weights in GPU memory.
  virtual std::vector<PlacedTensor> resident() const = 0;
  /// Contents of the block namespaces before the first step.
  virtual std::vector<PlannedBlocks> blocks() const = 0;

  /// True if the mini-batches of a step may choose neurons of their own.
  virtual bool takes_mini_batches() const { return false; }

  /// Operations that must end before the layer of `tag` may begin or, without a layer, before tokens are sampled:
  /// other weights that come from drives. `after` are the operations that make the hidden states.
  virtual std::vector<OperationId> before(OperationSink&, const OpTag& /*tag*/,
                                          const std::vector<OperationId>& /*after*/) {
    return {};
  }
  /// Operations that must end before `tokens` tokens are embedded: rows of tables that come from drives. `after` are
  /// the operations that make the tokens.
  virtual std::vector<OperationId> before_embedding(OperationSink&, const OpTag& /*tag*/, std::uint64_t /*tokens*/,
                                                    const std::vector<OperationId>& /*after*/) {
    return {};
  }
  /// Emits the output projection, the residuals and the feed-forward network; returns the last operation, which makes
  /// the hidden states.
  virtual OperationId finish(OperationSink& sink, LayerEnd end) = 0;
};

}  // namespace csdsim::host
