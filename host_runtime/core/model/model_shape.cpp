#include "host_runtime/core/model/model_shape.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace csdsim::host {

namespace {

// Rows of OPT's learned position table that no position uses (fairseq's padding offset).
constexpr std::uint32_t kOptPositionOffset = 2;

}  // namespace

ModelShape ModelShape::of(const ModelConfig& config) {
  ModelShape shape{.layers = config.layers,
                   .width = config.width,
                   .heads = config.heads,
                   .kv_heads = config.kv_heads,
                   .head_dim = config.head_dim,
                   .ffn = config.ffn,
                   .vocab = config.vocab,
                   .tied_embeddings = config.tied_embeddings};
  switch (config.architecture) {
    case Architecture::opt:
      shape.positions = config.max_positions + kOptPositionOffset;
      return shape;
    case Architecture::llama:
    case Architecture::qwen2:
    case Architecture::mistral:
    case Architecture::qwen3:
      shape.biases = config.qkv_biases() ? Biases::qkv : Biases::none;
      shape.ffn_matrices = 3;
      return shape;
  }
  throw InternalError("ModelShape: no such architecture");
}

void ModelShape::validate() const {
  const std::pair<const char*, std::uint32_t> sizes[] = {
      {"layers", layers},     {"width", width}, {"heads", heads}, {"kv_heads", kv_heads},
      {"head_dim", head_dim}, {"ffn", ffn},     {"vocab", vocab}, {"element_bytes", element_bytes}};
  for (const auto& [name, value] : sizes)
    if (value == 0) throw UserError(fmt::format("model: {} is 0, must be at least 1", name));
  if (heads % kv_heads != 0)
    throw UserError(fmt::format("model: {} heads are not a multiple of {} kv_heads", heads, kv_heads));
  if (ffn_matrices != 2 && ffn_matrices != 3)
    throw UserError(fmt::format("model: ffn_matrices is {}, must be 2 or 3 (gated)", ffn_matrices));
}

std::uint64_t ModelShape::layer_parameters() const {
  const std::uint64_t d = width;
  const std::uint64_t q = std::uint64_t{heads} * head_dim, kv = std::uint64_t{kv_heads} * head_dim;
  const std::uint64_t norm = biases == Biases::all ? 2 * d : d;
  std::uint64_t layer = d * (q + 2 * kv) + q * d + std::uint64_t{ffn_matrices} * d * ffn + 2 * norm;
  if (biases != Biases::none) layer += q + 2 * kv;
  if (biases == Biases::all) layer += d + std::uint64_t{ffn_matrices - 1} * ffn + d;
  return layer;
}

std::uint64_t ModelShape::parameters() const {
  const std::uint64_t d = width;
  const std::uint64_t norm = biases == Biases::all ? 2 * d : d;
  const std::uint64_t tables = std::uint64_t{vocab} * d * (tied_embeddings ? 1 : 2) + std::uint64_t{positions} * d;
  return tables + layers * layer_parameters() + norm;
}

ComputeWork ModelShape::embed(std::uint64_t tokens) const {
  const std::uint64_t rows = positions == 0 ? 2 : 3;  // token row and position row in, hidden state out
  return {.op = OperatorClass::elementwise,
          .flops = positions == 0 ? 0 : tokens * width,
          .weights = {0},
          .activations = {rows * tokens * width * element_bytes},
          .launches = positions == 0 ? 1U : 2U};
}

ComputeWork ModelShape::attention_inputs(std::uint64_t tokens) const {
  const std::uint64_t out = std::uint64_t{heads + 2 * kv_heads} * head_dim;
  const bool rotary = positions == 0;  // Q and K are read and written once more
  const std::uint64_t rotated = rotary ? 2ULL * (heads + kv_heads) * head_dim : 0;
  return {.op = OperatorClass::gemm,
          .flops = 2 * tokens * width * out,
          .weights = {(std::uint64_t{width} * out + (biases != Biases::none ? out : 0)) * element_bytes},
          // norm in and out, projection in and out
          .activations = {tokens * (3ULL * width + out + rotated) * element_bytes},
          .launches = rotary ? 3U : 2U};
}

ComputeWork ModelShape::recompute_kv(std::uint64_t tokens) const {
  const std::uint64_t out = 2ULL * kv_heads * head_dim;
  const bool rotary = positions == 0;  // K is read and written once more
  return {.op = OperatorClass::gemm,
          .flops = 2 * tokens * width * out,
          .weights = {(std::uint64_t{width} * out + (biases != Biases::none ? out : 0)) * element_bytes},
          .activations = {tokens * (3ULL * width + out + (rotary ? out : 0)) * element_bytes},
          .launches = rotary ? 3U : 2U};
}

ComputeWork ModelShape::prefill_attention(std::span<const std::uint32_t> lengths) const {
  std::uint64_t pairs = 0, tokens = 0;
  for (const std::uint64_t s : lengths) {
    pairs += s * (s + 1) / 2;
    tokens += s;
  }
  return {.op = OperatorClass::attention,
          .flops = 4 * std::uint64_t{heads} * head_dim * pairs,
          .weights = {0},
          .activations = {tokens * 2 * (heads + kv_heads) * head_dim * element_bytes},
          .launches = 1};
}

ComputeWork ModelShape::decode_attention(std::uint64_t sequences, std::uint64_t contexts, std::uint64_t queries) const {
  return {.op = OperatorClass::attention,
          .flops = 4 * std::uint64_t{heads} * head_dim * contexts * queries,
          .weights = {0},
          .activations = kv_bytes_per_token_and_layer() * contexts +
                         query_bytes({KvHead{0}, kv_heads}) * (2 * sequences * queries),
          .launches = 1};
}

ComputeWork ModelShape::merge_attention(std::uint64_t tokens, std::uint32_t parts) const {
  const HeadRange all{KvHead{0}, kv_heads};
  return {.op = OperatorClass::elementwise,
          .flops = 2 * tokens * parts * heads * head_dim,  // a weight times a value, and a sum
          .weights = {0},
          .activations = partial_bytes(all) * (tokens * parts) + query_bytes(all) * tokens,
          .launches = 1};
}

ComputeWork ModelShape::finish_layer(std::uint64_t tokens) const {
  ComputeWork work = finish_attention(tokens);
  const ComputeWork network = feed_forward(tokens, ffn);
  work.flops += network.flops;
  work.weights += network.weights;
  work.activations += network.activations;
  work.launches += network.launches;
  return work;
}

ComputeWork ModelShape::finish_attention(std::uint64_t tokens) const {
  const std::uint64_t d = width, q = std::uint64_t{heads} * head_dim;
  return {.op = OperatorClass::gemm,
          .flops = 2 * tokens * q * d,
          .weights = {(q * d + (biases == Biases::all ? d : 0)) * element_bytes},
          // projection in and out, a residual add (two reads, one write), norm
          .activations = {tokens * (q + d + 3 * d + 2 * d) * element_bytes},
          .launches = 3};
}

ComputeWork ModelShape::feed_forward(std::uint64_t tokens, std::uint64_t neurons) const {
  const std::uint64_t d = width, weights = ffn_matrices * d * neurons;
  const std::uint64_t bias = biases == Biases::all ? d + std::uint64_t{ffn_matrices - 1} * neurons : 0;
  // Without a gate the activation is fused into the first matrix product. With a gate, the outputs of gate and up and
  // their product are each written and read.
  const std::uint64_t inner = (ffn_matrices == 3 ? 6ULL : 2ULL) * neurons;
  return {.op = OperatorClass::gemm,
          .flops = 2 * tokens * weights,
          .weights = {(weights + bias) * element_bytes},
          // both ends of the network, a residual add (two reads, one write), both sides of the neurons
          .activations = {tokens * (2 * d + 3 * d + inner) * element_bytes},
          .launches = ffn_matrices + 2};
}

ComputeWork ModelShape::predict_neurons(std::uint64_t tokens, std::uint64_t rank) const {
  const std::uint64_t weights = rank * (std::uint64_t{width} + ffn);
  return {.op = OperatorClass::gemm,
          .flops = 2 * tokens * weights,
          .weights = {weights * element_bytes},
          .activations = {tokens * (width + 2 * rank + 2ULL * ffn) * element_bytes},
          .launches = 3};
}

ComputeWork ModelShape::merge_feed_forward(std::uint64_t tokens, std::uint32_t parts) const {
  const std::uint64_t d = width;
  return {.op = OperatorClass::elementwise,
          .flops = tokens * d * (parts + (biases == Biases::all ? 1U : 0U)),
          .weights = {biases == Biases::all ? d * element_bytes : 0},
          // the sums, the residual in and out
          .activations = partial_sum_bytes(tokens) * parts + Bytes{2 * tokens * d * element_bytes},
          .launches = 1};
}

ComputeWork ModelShape::sample(std::uint64_t sequences) const {
  const std::uint64_t d = width;
  return {.op = OperatorClass::gemm,
          .flops = 2 * sequences * d * vocab,
          .weights = {d * vocab * element_bytes},
          .activations = {sequences * (3 * d + 2ULL * vocab) * element_bytes},
          .launches = 3};
}

}  // namespace csdsim::host
