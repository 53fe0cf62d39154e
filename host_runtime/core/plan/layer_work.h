// The operator of a model that a ComputeWork is: whoever measures times runs that operator on one real layer.
#pragma once

#include <cstdint>
#include <optional>

#include "host_runtime/core/model/model_shape.h"

namespace csdsim::host {

/// The operators of ModelShape that a layer, or the ends of a model, consist of.
enum class LayerOperator : std::uint8_t {
  embed,
  attention_inputs,
  recompute_kv,
  prompt_attention,
  step_attention,
  finish_attention,
  feed_forward,
  finish_layer,
  sample
};

struct LayerWork {
  LayerOperator op = LayerOperator::embed;
  std::uint64_t rows = 0;      ///< tokens of the batch; for attention, its sequences
  std::uint64_t attended = 0;  ///< attention: tokens of all sequences together
  double share = 1;            ///< share of the operations of this operator that the work has
  constexpr bool operator==(const LayerWork&) const = default;

  constexpr bool is_attention() const {
    return op == LayerOperator::prompt_attention || op == LayerOperator::step_attention;
  }
};

/// The operator of a model with exactly these operations and bytes; nothing if there is none. Attention states no
/// lengths: its sequences count as equally long, and where the real ones differ, prompts have `share` of the operations
/// of equal ones. A prompt of few tokens may have the operations and bytes of a decode step: it counts as one.
std::optional<LayerWork> layer_work(const ModelShape& model, const ComputeWork& work);

/// A checkpoint's configuration with this shape; nothing if no family has it.
std::optional<ModelConfig> config_of(const ModelShape& model);

}  // namespace csdsim::host
