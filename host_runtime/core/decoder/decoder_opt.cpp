#include "host_runtime/core/decoder/decoder_opt.h"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <utility>

namespace csdsim::host {
namespace {

// OPT's learned position table starts with two rows that are never used (fairseq's padding offset).
constexpr std::uint32_t kPositionOffset = 2;

constexpr std::array kOptOperators{Operator::embedding, Operator::linear, Operator::layer_norm,
                                   Operator::relu,      Operator::add,    Operator::causal_attention};

}  // namespace

OptDecoder::OptDecoder(const ModelConfig& config, const WeightSource& weights, Backend& backend, KvPrecision kv)
    : Decoder(config, backend, kv) {
  WeightLoader load(weights, backend, "decoder.", "embed_tokens.weight");
  load.need(config.architecture, kOptOperators);
  const std::uint32_t width = config.width;
  const auto norm_of = [&](const std::string& name) {
    return Affine{load.vector(name + ".weight", width), load.vector(name + ".bias", width)};
  };
  const std::uint32_t token_width = config.token_width();
  token_table_ = load.matrix(load.full("embed_tokens.weight"), config.vocab, token_width);
  if (token_width != width) {
    project_in_ = load.matrix(load.full("project_in.weight"), width, token_width);
    project_out_ = load.matrix(load.full("project_out.weight"), token_width, width);
  }
  position_table_ =
      load.matrix(load.full("embed_positions.weight"), std::uint64_t{config.max_positions} + kPositionOffset, width);
  if (!config.tied_embeddings) output_table_ = load.matrix("lm_head.weight", config.vocab, token_width);
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const std::string layer = load.full(fmt::format("layers.{}.", i));
    layers_.push_back({norm_of(layer + "self_attn_layer_norm"), load.affine(layer + "self_attn.q_proj", width, width),
                       load.affine(layer + "self_attn.k_proj", width, width),
                       load.affine(layer + "self_attn.v_proj", width, width),
                       load.affine(layer + "self_attn.out_proj", width, width), norm_of(layer + "final_layer_norm"),
                       load.affine(layer + "fc1", config.ffn, width), load.affine(layer + "fc2", width, config.ffn)});
  }
  if (config.final_norm) final_norm_ = norm_of(load.full("final_layer_norm"));
  if (config.tied_embeddings) load.check_tied(load.full("embed_tokens.weight"));
  load.check_all_loaded();
}

Tensor OptDecoder::linear(const Tensor& x, const Weight& weight, const Weight& bias) const {
  Tensor out = backend().allocate(x.rows, weight.rows);
  backend().linear(x, weight, &bias, out);
  return out;
}

Tensor OptDecoder::project(const Tensor& x, const Weight& weight) const {
  Tensor out = backend().allocate(x.rows, weight.rows);
  backend().linear(x, weight, nullptr, out);
  return out;
}

Tensor OptDecoder::norm(const Tensor& x, const Affine& affine) const {
  Tensor out = backend().allocate(x.rows, x.cols);
  backend().layer_norm(x, affine.weight, affine.bias, config().norm_epsilon, out);
  return out;
}

HiddenStates OptDecoder::do_embed(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) const {
  std::vector<std::uint32_t> token_rows, position_rows;
  for (const TokenId token : tokens) token_rows.push_back(token.value);
  for (const TokenIndex position : positions) position_rows.push_back(position.value + kPositionOffset);
  Tensor words = backend().allocate(tokens.size(), config().token_width());
  backend().embedding(token_table_, token_rows, words);
  HiddenStates hidden{project_in_.storage ? project(words, project_in_) : std::move(words),
                      {positions.begin(), positions.end()}};
  Tensor learned = backend().allocate(tokens.size(), config().width);
  backend().embedding(position_table_, position_rows, learned);
  backend().add(hidden.values, learned);
  return hidden;
}

AttentionInputs OptDecoder::attention_inputs(LayerId layer, const HiddenStates& hidden) const {
  const Layer& weights = layers_.at(layer.value);
  const auto project_from = [&](const Tensor& x) {
    Tensor q = linear(x, weights.q);
    KeysValues kv = project_kv(weights, x);
    return AttentionInputs{std::move(q), std::move(kv.k), std::move(kv.v)};
  };
  return config().norm_first ? project_from(norm(hidden.values, weights.attention_norm)) : project_from(hidden.values);
}

KeysValues OptDecoder::keys_values(LayerId layer, const HiddenStates& hidden) const {
  const Layer& weights = layers_.at(layer.value);
  return config().norm_first ? project_kv(weights, norm(hidden.values, weights.attention_norm))
                             : project_kv(weights, hidden.values);
}

KeysValues OptDecoder::project_kv(const Layer& weights, const Tensor& x) const {
  KeysValues kv{linear(x, weights.k), linear(x, weights.v)};
  round_kv(kv.k, kv.v);
  return kv;
}

void OptDecoder::finish_attention(LayerId layer, HiddenStates& hidden, const Tensor& attention_output) const {
  const Layer& weights = layers_.at(layer.value);
  backend().add(hidden.values, linear(attention_output, weights.out));
  if (!config().norm_first) hidden.values = norm(hidden.values, weights.attention_norm);
}

Tensor OptDecoder::feed_forward_inputs(LayerId layer, const HiddenStates& hidden) const {
  if (config().norm_first) return norm(hidden.values, layers_.at(layer.value).ffn_norm);
  std::vector<std::uint32_t> rows(hidden.values.rows);
  std::iota(rows.begin(), rows.end(), 0u);
  Tensor copy = backend().allocate(hidden.values.rows, hidden.values.cols);
  backend().select_rows(hidden.values, rows, copy);
  return copy;
}

Tensor OptDecoder::neuron_activations(LayerId layer, const Tensor& inputs, const FeedForwardWeights* own) const {
  const Layer& weights = layers_.at(layer.value);
  Tensor inner = linear(inputs, own != nullptr ? own->up : weights.fc1.weight, weights.fc1.bias);
  backend().relu(inner);
  return inner;
}

Tensor OptDecoder::project_down(LayerId layer, const Tensor& inner, const FeedForwardWeights* own) const {
  const Layer& weights = layers_.at(layer.value);
  return linear(inner, own != nullptr ? own->down : weights.fc2.weight, weights.fc2.bias);
}

void OptDecoder::add_feed_forward(LayerId layer, HiddenStates& hidden, const Tensor& output) const {
  backend().add(hidden.values, output);
  if (!config().norm_first) hidden.values = norm(hidden.values, layers_.at(layer.value).ffn_norm);
}

std::vector<float> OptDecoder::logits(const HiddenStates& hidden, std::span<const std::uint32_t> rows) const {
  Tensor chosen = backend().allocate(rows.size(), config().width);
  backend().select_rows(hidden.values, rows, chosen);
  if (config().final_norm) chosen = norm(chosen, final_norm_);
  if (project_out_.storage) chosen = project(chosen, project_out_);
  Tensor out = backend().allocate(rows.size(), config().vocab);
  backend().linear(chosen, config().tied_embeddings ? token_table_ : output_table_, nullptr, out);
  std::vector<float> values(rows.size() * config().vocab);
  backend().download(out, values);
  return values;
}

}  // namespace csdsim::host
