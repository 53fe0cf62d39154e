#include "host_runtime/core/plan/layer_work.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace csdsim::host {
namespace {

std::optional<LayerWork> step_attention(const ModelShape& model, const ComputeWork& work) {
  const std::uint64_t contexts = work.flops / (4ULL * model.heads * model.head_dim),
                      kv = model.kv_bytes_per_token_and_layer().value * contexts,
                      per_sequence = 2 * model.query_bytes({KvHead{0}, model.kv_heads}).value;
  if (contexts == 0 || work.activations.value <= kv) return std::nullopt;
  const std::uint64_t sequences = (work.activations.value - kv) / per_sequence;
  if (sequences == 0 || sequences > contexts || model.decode_attention(sequences, contexts) != work)
    return std::nullopt;
  return LayerWork{.op = LayerOperator::step_attention, .rows = sequences, .attended = contexts};
}

std::optional<LayerWork> prompt_attention(const ModelShape& model, const ComputeWork& work) {
  const std::uint64_t per_token = 2ULL * (model.heads + model.kv_heads) * model.head_dim * model.element_bytes,
                      per_pair = 4ULL * model.heads * model.head_dim;
  const std::uint64_t tokens = work.activations.value / per_token, pairs = work.flops / per_pair;
  if (tokens == 0 || tokens * per_token != work.activations.value || pairs * per_pair != work.flops || pairs < tokens ||
      pairs > tokens * (tokens + 1) / 2 || work.weights.value > 0 || work.launches != 1)
    return std::nullopt;
  const double length = 2.0 * static_cast<double>(pairs) / static_cast<double>(tokens) - 1;
  const auto sequences = std::clamp<std::uint64_t>(
      static_cast<std::uint64_t>(std::llround(static_cast<double>(tokens) / length)), 1, tokens);
  std::vector<std::uint32_t> lengths;
  for (std::uint64_t i = 0; i < sequences; ++i)
    lengths.push_back(static_cast<std::uint32_t>(tokens / sequences + (i < tokens % sequences ? 1 : 0)));
  const ComputeWork equal = model.prefill_attention(lengths);
  return LayerWork{.op = LayerOperator::prompt_attention,
                   .rows = sequences,
                   .attended = tokens,
                   .share = static_cast<double>(work.flops) / static_cast<double>(equal.flops)};
}

}  // namespace

std::optional<LayerWork> layer_work(const ModelShape& model, const ComputeWork& work) {
  if (work.op == OperatorClass::attention) {
    if (auto step = step_attention(model, work)) return step;
    return prompt_attention(model, work);
  }
  struct Candidate {
    LayerOperator op;
    ComputeWork (*of)(const ModelShape&, std::uint64_t rows);
  };
  constexpr std::array<Candidate, 7> candidates{{
      {LayerOperator::embed, [](const ModelShape& m, std::uint64_t rows) { return m.embed(rows); }},
      {LayerOperator::attention_inputs,
       [](const ModelShape& m, std::uint64_t rows) { return m.attention_inputs(rows); }},
      {LayerOperator::recompute_kv, [](const ModelShape& m, std::uint64_t rows) { return m.recompute_kv(rows); }},
      {LayerOperator::finish_attention,
       [](const ModelShape& m, std::uint64_t rows) { return m.finish_attention(rows); }},
      {LayerOperator::feed_forward,
       [](const ModelShape& m, std::uint64_t rows) { return m.feed_forward(rows, m.ffn); }},
      {LayerOperator::finish_layer, [](const ModelShape& m, std::uint64_t rows) { return m.finish_layer(rows); }},
      {LayerOperator::sample, [](const ModelShape& m, std::uint64_t rows) { return m.sample(rows); }},
  }};
  for (const Candidate& candidate : candidates) {
    // Activations of these operators grow with the rows alone.
    const std::uint64_t rows = work.activations.value / candidate.of(model, 1).activations.value;
    if (rows > 0 && candidate.of(model, rows) == work) return LayerWork{.op = candidate.op, .rows = rows};
  }
  return std::nullopt;
}

std::optional<ModelConfig> config_of(const ModelShape& model) {
  ModelConfig config;
  config.layers = model.layers;
  config.width = model.width;
  config.heads = model.heads;
  config.kv_heads = model.kv_heads;
  config.head_dim = model.head_dim;
  config.ffn = model.ffn;
  config.vocab = model.vocab;
  config.tied_embeddings = model.tied_embeddings;
  if (model.positions > 0 && model.biases == Biases::all && model.ffn_matrices == 2) {
    config.architecture = Architecture::opt;
    config.max_positions = model.positions > 2 ? model.positions - 2 : 1;
  } else if (model.positions == 0 && model.biases != Biases::all && model.ffn_matrices == 3) {
    config.architecture = model.biases == Biases::qkv ? Architecture::qwen2 : Architecture::llama;
    config.max_positions = 1U << 20;
  } else {
    return std::nullopt;
  }
  return model.element_bytes == 2 ? std::optional(config) : std::nullopt;
}

}  // namespace csdsim::host
