#include "host_runtime/core/decoder_opt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace csdsim::host {
namespace {

// OPT's learned position table starts with two rows that are never used (fairseq's padding offset).
constexpr std::uint32_t kPositionOffset = 2;

constexpr std::array kNeeded{Operator::embedding, Operator::linear, Operator::layer_norm,
                             Operator::relu,      Operator::add,    Operator::causal_attention};

// Loads tensors by name and checks their shapes against what the config implies.
class Loader {
 public:
  Loader(const WeightSource& weights, Backend& backend) : weights_(weights), backend_(backend) {
    prefix_ = weights.contains("model.decoder.embed_tokens.weight") ? "model.decoder." : "decoder.";
  }

  Weight matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) { return load(name, {rows, cols}); }
  Weight vector(const std::string& name, std::uint64_t size) { return load(name, {size}); }
  std::string decoder(std::string_view name) const { return prefix_ + std::string(name); }

 private:
  Weight load(const std::string& name, const std::vector<std::uint64_t>& expected) {
    const StoredTensor tensor = weights_.tensor(name);
    if (tensor.shape != expected) {
      throw UserError(fmt::format("{}: tensor '{}' has shape [{}], config.json implies [{}]", weights_.description(),
                                  name, fmt::join(tensor.shape, ", "), fmt::join(expected, ", ")));
    }
    return backend_.load(tensor);
  }

  const WeightSource& weights_;
  Backend& backend_;
  std::string prefix_;
};

}  // namespace

OptDecoder::OptDecoder(const ModelConfig& config, const WeightSource& weights, Backend& backend)
    : Decoder(config, backend) {
  for (const Operator op : kNeeded) {
    if (!backend.supports(op)) {
      throw UserError(fmt::format("backend '{}' cannot run opt: it has no operator '{}'", backend.name(),
                                  kOperatorNames[static_cast<std::size_t>(op)]));
    }
  }
  Loader load(weights, backend);
  const std::uint32_t width = config.width;
  const auto affine = [&](const std::string& name, std::uint32_t out, std::uint32_t in) {
    return Affine{load.matrix(name + ".weight", out, in), load.vector(name + ".bias", out)};
  };
  const auto norm_of = [&](const std::string& name) {
    return Affine{load.vector(name + ".weight", width), load.vector(name + ".bias", width)};
  };
  token_table_ = load.matrix(load.decoder("embed_tokens.weight"), config.vocab, width);
  position_table_ =
      load.matrix(load.decoder("embed_positions.weight"), std::uint64_t{config.max_positions} + kPositionOffset, width);
  if (!config.tied_embeddings) output_table_ = load.matrix("lm_head.weight", config.vocab, width);
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const std::string layer = load.decoder(fmt::format("layers.{}.", i));
    layers_.push_back({norm_of(layer + "self_attn_layer_norm"), affine(layer + "self_attn.q_proj", width, width),
                       affine(layer + "self_attn.k_proj", width, width),
                       affine(layer + "self_attn.v_proj", width, width),
                       affine(layer + "self_attn.out_proj", width, width), norm_of(layer + "final_layer_norm"),
                       affine(layer + "fc1", config.ffn, width), affine(layer + "fc2", width, config.ffn)});
  }
  final_norm_ = norm_of(load.decoder("final_layer_norm"));
}

Tensor OptDecoder::linear(const Tensor& x, const Affine& affine) const {
  Tensor out = backend().allocate(x.rows, affine.weight.rows);
  backend().linear(x, affine.weight, &affine.bias, out);
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
  HiddenStates hidden{backend().allocate(tokens.size(), config().width), {positions.begin(), positions.end()}};
  Tensor learned = backend().allocate(tokens.size(), config().width);
  backend().embedding(token_table_, token_rows, hidden.values);
  backend().embedding(position_table_, position_rows, learned);
  backend().add(hidden.values, learned);
  return hidden;
}

AttentionInputs OptDecoder::attention_inputs(LayerId layer, const HiddenStates& hidden) const {
  const Layer& weights = layers_.at(layer.value);
  const Tensor normed = norm(hidden.values, weights.attention_norm);
  AttentionInputs inputs{linear(normed, weights.q), linear(normed, weights.k), linear(normed, weights.v)};
  for (Tensor* tensor : {&inputs.k, &inputs.v}) backend().round_to_half(*tensor);
  return inputs;
}

void OptDecoder::finish_layer(LayerId layer, HiddenStates& hidden, const Tensor& attention_output) const {
  const Layer& weights = layers_.at(layer.value);
  backend().add(hidden.values, linear(attention_output, weights.out));
  Tensor inner = linear(norm(hidden.values, weights.ffn_norm), weights.fc1);
  backend().relu(inner);
  backend().add(hidden.values, linear(inner, weights.fc2));
}

std::vector<float> OptDecoder::logits(const HiddenStates& hidden, std::span<const std::uint32_t> rows) const {
  Tensor chosen = backend().allocate(rows.size(), config().width);
  backend().select_rows(hidden.values, rows, chosen);
  const Tensor normed = norm(chosen, final_norm_);
  Tensor out = backend().allocate(rows.size(), config().vocab);
  backend().linear(normed, config().tied_embeddings ? token_table_ : output_table_, nullptr, out);
  std::vector<float> values(rows.size() * config().vocab);
  backend().download(out, values);
  return values;
}

}  // namespace csdsim::host
