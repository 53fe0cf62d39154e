// The time that one step of a serving engine takes on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "host_runtime/core/machine/gpu_model.h"
#include "host_runtime/core/model/model_shape.h"

namespace csdsim::host {

/// What a step computes: parts of prompts, and one token for each sequence that decodes.
struct StepWork {
  struct Chunk {
    std::uint64_t before = 0;  ///< tokens whose K and V are there
    std::uint64_t tokens = 0;  ///< tokens that are computed
  };
  std::vector<Chunk> chunks;
  std::uint64_t decodes = 0;          ///< sequences that decode
  std::uint64_t decode_contexts = 0;  ///< tokens that they attend to, their new ones included, in all
  std::uint64_t samples = 0;          ///< sequences that get a token

  std::uint64_t tokens() const;
};

/// Adds up the operators of a decoder. The linear layers run once over all tokens of the step; attention of chunks and
/// attention of decodes are two kernels, as in FlashAttention and PagedAttention.
class StepCost {
 public:
  /// `kv_element_bytes`: of K and V in the memory of the GPU, that attention reads.
  StepCost(const ModelShape& model, const GpuModel& gpu, std::uint32_t kv_element_bytes = 2)
      : model_(model),
        gpu_(gpu),
        kv_bytes_(model.kv_bytes_per_token_and_layer().value / model.element_bytes * kv_element_bytes) {}

  /// Embedding and sampling.
  SimTime ends(const StepWork& work) const;
  /// One layer.
  SimTime layer(const StepWork& work) const;
  /// All of it.
  SimTime step(const StepWork& work) const { return ends(work) + layer(work) * model_.layers; }

  const ModelShape& model() const { return model_; }

 private:
  ComputeWork chunk_attention(const StepWork& work) const;
  ComputeWork decode_attention(const StepWork& work) const;

  ModelShape model_;
  GpuModel gpu_;
  std::uint64_t kv_bytes_;  ///< K and V of a token in one layer
};

}  // namespace csdsim::host
