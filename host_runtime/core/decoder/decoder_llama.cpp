#include "host_runtime/core/decoder/decoder_llama.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "host_runtime/core/decoder/rotary.h"

namespace csdsim::host {
namespace {

constexpr std::array kLlamaOperators{Operator::embedding, Operator::linear, Operator::rms_norm,        Operator::rotate,
                                     Operator::swiglu,    Operator::add,    Operator::causal_attention};

}  // namespace

LlamaDecoder::LlamaDecoder(const ModelConfig& config, const WeightSource& weights, Backend& backend, KvPrecision kv)
    : Decoder(config, backend, kv) {
  WeightLoader load(weights, backend, "", "embed_tokens.weight");
  load.need(config.architecture, kLlamaOperators);
  if (config.fatrelu) load.need(config.architecture, std::array{Operator::fatrelu});
  const std::uint32_t width = config.width;
  const auto projection = [&](const std::string& name, std::uint32_t out, std::uint32_t in, bool biased) {
    if (biased) return load.affine(name, out, in);
    return Affine{load.matrix(name + ".weight", out, in), {}};
  };
  token_table_ = load.matrix(load.full("embed_tokens.weight"), config.vocab, width);
  if (!config.tied_embeddings) output_table_ = load.matrix("lm_head.weight", config.vocab, width);
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const std::string layer = load.full(fmt::format("layers.{}.", i)), attention = layer + "self_attn.";
    const auto head_norm = [&](const char* name) {
      return config.head_norms() ? load.vector(attention + name, config.head_dim) : Weight{};
    };
    const bool qkv = config.qkv_biases(), out = config.attention_biases, ffn = config.ffn_biases;
    layers_.push_back({.attention_norm = load.vector(layer + "input_layernorm.weight", width),
                       .q = projection(attention + "q_proj", config.q_width(), width, qkv),
                       .k = projection(attention + "k_proj", config.kv_width(), width, qkv),
                       .v = projection(attention + "v_proj", config.kv_width(), width, qkv),
                       .out = projection(attention + "o_proj", width, config.q_width(), out),
                       .q_norm = head_norm("q_norm.weight"),
                       .k_norm = head_norm("k_norm.weight"),
                       .ffn_norm = load.vector(layer + "post_attention_layernorm.weight", width),
                       .gate = projection(layer + "mlp.gate_proj", config.ffn, width, ffn),
                       .up = projection(layer + "mlp.up_proj", config.ffn, width, ffn),
                       .down = projection(layer + "mlp.down_proj", width, config.ffn, ffn)});
  }
  final_norm_ = load.vector(load.full("norm.weight"), width);
  if (config.tied_embeddings) load.check_tied(load.full("embed_tokens.weight"));
  load.check_all_loaded();
  inverse_frequencies_ = frequencies_at(0);
}

Weight LlamaDecoder::frequencies_at(std::uint32_t context) const {
  const std::vector<float> values = inverse_frequencies(config().rotary, config().head_dim, context);
  return backend().load({ElementType::f32, {values.size()}, std::as_bytes(std::span<const float>(values))});
}

Tensor LlamaDecoder::linear(const Tensor& x, const Weight& weight, const Weight* bias) const {
  Tensor out = backend().allocate(x.rows, weight.rows);
  backend().linear(x, weight, bias, out);
  return out;
}

Tensor LlamaDecoder::project(const Tensor& x, const Affine& projection, const Weight* own) const {
  return linear(x, own != nullptr ? *own : projection.weight, projection.bias.storage ? &projection.bias : nullptr);
}

void LlamaDecoder::norm_heads(Tensor& x, const Weight& gamma) const {
  const std::size_t rows = x.rows, cols = x.cols;
  const Tensor heads{rows * cols / gamma.cols, gamma.cols, std::move(x.storage)};
  x = norm(heads, gamma);
  x.rows = rows, x.cols = cols;
}

Tensor LlamaDecoder::norm(const Tensor& x, const Weight& gamma) const {
  Tensor out = backend().allocate(x.rows, x.cols);
  backend().rms_norm(x, gamma, config().norm_epsilon, out);
  return out;
}

HiddenStates LlamaDecoder::do_embed(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) const {
  std::vector<std::uint32_t> rows;
  for (const TokenId token : tokens) rows.push_back(token.value);
  HiddenStates hidden{backend().allocate(tokens.size(), config().width), {positions.begin(), positions.end()}};
  backend().embedding(token_table_, rows, hidden.values);
  return hidden;
}

AttentionInputs LlamaDecoder::attention_inputs(LayerId layer, const HiddenStates& hidden) const {
  const Layer& weights = layers_.at(layer.value);
  const Tensor normed = norm(hidden.values, weights.attention_norm);
  Tensor q = project(normed, weights.q);
  if (config().head_norms()) norm_heads(q, weights.q_norm);
  rotate(q, hidden);
  KeysValues kv = project_kv(weights, normed, hidden);
  return {std::move(q), std::move(kv.k), std::move(kv.v)};
}

KeysValues LlamaDecoder::keys_values(LayerId layer, const HiddenStates& hidden) const {
  const Layer& weights = layers_.at(layer.value);
  return project_kv(weights, norm(hidden.values, weights.attention_norm), hidden);
}

KeysValues LlamaDecoder::project_kv(const Layer& weights, const Tensor& normed, const HiddenStates& hidden) const {
  KeysValues kv{project(normed, weights.k), project(normed, weights.v)};
  if (config().head_norms()) norm_heads(kv.k, weights.k_norm);
  rotate(kv.k, hidden);
  round_kv(kv.k, kv.v);
  return kv;
}

void LlamaDecoder::rotate(Tensor& x, const HiddenStates& hidden) const {
  std::vector<std::uint32_t> positions;
  for (const TokenIndex position : hidden.positions) positions.push_back(position.value);
  const RotaryPositions& rotary = config().rotary;
  Weight of_context;
  if (rotary.changes_at(hidden.context)) of_context = frequencies_at(hidden.context);
  backend().rotate(x, positions, of_context.storage ? of_context : inverse_frequencies_, rotary.magnitude());
}

void LlamaDecoder::finish_attention(LayerId layer, HiddenStates& hidden, const Tensor& attention_output) const {
  backend().add(hidden.values, project(attention_output, layers_.at(layer.value).out));
}

Tensor LlamaDecoder::feed_forward_inputs(LayerId layer, const HiddenStates& hidden) const {
  return norm(hidden.values, layers_.at(layer.value).ffn_norm);
}

Tensor LlamaDecoder::neuron_activations(LayerId layer, const Tensor& inputs, const FeedForwardWeights* own) const {
  const Layer& weights = layers_.at(layer.value);
  Tensor inner = project(inputs, weights.gate, own != nullptr ? &own->gate : nullptr);
  const Tensor up = project(inputs, weights.up, own != nullptr ? &own->up : nullptr);
  if (config().fatrelu)
    backend().fatrelu(inner, up, static_cast<float>(config().fatrelu->value()));
  else
    backend().swiglu(inner, up);
  return inner;
}

Tensor LlamaDecoder::project_down(LayerId layer, const Tensor& inner, const FeedForwardWeights* own) const {
  return project(inner, layers_.at(layer.value).down, own != nullptr ? &own->down : nullptr);
}

void LlamaDecoder::add_feed_forward(LayerId, HiddenStates& hidden, const Tensor& output) const {
  backend().add(hidden.values, output);
}

std::vector<float> LlamaDecoder::logits(const HiddenStates& hidden, std::span<const std::uint32_t> rows) const {
  Tensor chosen = backend().allocate(rows.size(), config().width);
  backend().select_rows(hidden.values, rows, chosen);
  const Tensor out = linear(norm(chosen, final_norm_), config().tied_embeddings ? token_table_ : output_table_);
  std::vector<float> values(rows.size() * config().vocab);
  backend().download(out, values);
  return values;
}

}  // namespace csdsim::host
