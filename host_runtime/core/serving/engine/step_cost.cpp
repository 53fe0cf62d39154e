#include "host_runtime/core/serving/engine/step_cost.h"

namespace csdsim::host {

std::uint64_t StepWork::tokens() const {
  std::uint64_t sum = decodes;
  for (const Chunk& chunk : chunks) sum += chunk.tokens;
  return sum;
}

/// Each token of a chunk attends to the tokens before the chunk, and causally to those in it. K and V of all of them
/// are read once (fused kernel).
ComputeWork StepCost::chunk_attention(const StepWork& work) const {
  std::uint64_t pairs = 0, tokens = 0, contexts = 0;
  for (const StepWork::Chunk& chunk : work.chunks) {
    pairs += chunk.tokens * chunk.before + chunk.tokens * (chunk.tokens + 1) / 2;
    tokens += chunk.tokens;
    contexts += chunk.before + chunk.tokens;
  }
  return {.op = OperatorClass::attention,
          .flops = 4 * std::uint64_t{model_.heads} * model_.head_dim * pairs,
          .weights = {},
          .activations = Bytes{kv_bytes_ * contexts} + model_.query_bytes({KvHead{0}, model_.kv_heads}) * (2 * tokens),
          .launches = 1};
}

ComputeWork StepCost::decode_attention(const StepWork& work) const {
  ComputeWork attention = model_.decode_attention(work.decodes, work.decode_contexts);
  const Bytes read = model_.kv_bytes_per_token_and_layer() * work.decode_contexts;
  attention.activations = attention.activations - read + Bytes{kv_bytes_ * work.decode_contexts};
  return attention;
}

SimTime StepCost::layer(const StepWork& work) const {
  const std::uint64_t tokens = work.tokens();
  SimTime sum = gpu_.time(model_.attention_inputs(tokens)) + gpu_.time(model_.finish_layer(tokens));
  if (!work.chunks.empty()) sum += gpu_.time(chunk_attention(work));
  if (work.decodes > 0) sum += gpu_.time(decode_attention(work));
  return sum;
}

SimTime StepCost::ends(const StepWork& work) const {
  SimTime sum = gpu_.time(model_.embed(work.tokens()));
  if (work.samples > 0) sum += gpu_.time(model_.sample(work.samples));
  return sum;
}

}  // namespace csdsim::host
