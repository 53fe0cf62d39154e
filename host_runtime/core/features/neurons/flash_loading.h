// Writes the weights of FlashWeights to the drives, before a run that carries data.
#pragma once

#include "host_runtime/core/features/neurons/flash_weights.h"

namespace csdsim::host {

/// One step: for each layer and drive that has neurons of it, write_blocks of all their records.
class FlashLoading final : public Planner {
 public:
  /// `weights` with nothing but records in the namespaces.
  explicit FlashLoading(const FlashWeights& weights) : weights_(weights) {}
  bool next_step(OperationSink& sink) override;

 private:
  FlashWeights weights_;
  bool emitted_ = false;
};

}  // namespace csdsim::host
