#include "host_runtime/core/decoder/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "host_runtime/core/decoder/decoder_llama.h"
#include "host_runtime/core/decoder/decoder_opt.h"

namespace csdsim::host {

HiddenStates Decoder::embed(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) const {
  if (tokens.size() != positions.size()) throw InternalError("embed: one position a token is needed");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].value >= config_.vocab) {
      throw UserError(fmt::format("token id {} (token {} of the input) is outside the model's vocabulary of {}",
                                  tokens[i].value, i, config_.vocab));
    }
    if (positions[i].value >= config_.longest_context()) {
      throw UserError(fmt::format("a context of {} tokens is longer than the model's {} positions{}",
                                  positions[i].value + std::uint64_t{1}, config_.longest_context(),
                                  config_.longest_context() < config_.max_positions
                                      ? " inside one sliding window; attention over windows is not implemented"
                                      : ""));
    }
  }
  HiddenStates hidden = do_embed(tokens, positions);
  for (const TokenIndex position : positions) hidden.context = std::max(hidden.context, position.value + 1);
  return hidden;
}

Tensor Decoder::prefill_attention(const AttentionInputs& inputs, std::span<const std::uint32_t> lengths) const {
  Tensor out = backend_.allocate(inputs.q.rows, inputs.q.cols);
  backend_.causal_attention(inputs.q, inputs.k, inputs.v, {config_.heads, config_.kv_heads, config_.head_dim}, lengths,
                            out);
  if (kv_ == KvPrecision::f16) backend_.round_to_half(out);
  return out;
}

void Decoder::finish_layer(LayerId layer, HiddenStates& hidden, const Tensor& attention_output) const {
  finish_attention(layer, hidden, attention_output);
  feed_forward(layer, hidden, feed_forward_inputs(layer, hidden));
}

void Decoder::feed_forward(LayerId layer, HiddenStates& hidden, const Tensor& inputs, const NeuronMasks* masks,
                           const FeedForwardWeights* weights) const {
  if (masks != nullptr && !backend_.supports(Operator::mask)) {
    throw UserError(fmt::format("the {} backend cannot leave out neurons of a feed-forward block ({})", backend_.name(),
                                kOperatorNames[static_cast<std::size_t>(Operator::mask)]));
  }
  Tensor inner = neuron_activations(layer, inputs, weights);
  if (masks != nullptr) backend_.mask(inner, masks->kept);
  finish_feed_forward(layer, hidden, inner, weights);
}

void Decoder::round_kv(Tensor& k, Tensor& v) const {
  if (kv_ == KvPrecision::f32) return;
  backend_.round_to_half(k);
  backend_.round_to_half(v);
}

std::vector<float> Decoder::logits(const HiddenStates& hidden) const {
  std::vector<std::uint32_t> rows(hidden.values.rows);
  std::iota(rows.begin(), rows.end(), 0u);
  return logits(hidden, rows);
}

std::vector<Half> Decoder::to_host(const Tensor& tensor) const {
  std::vector<Half> values(tensor.rows * tensor.cols);
  backend_.download(tensor, values);
  return values;
}

std::vector<Half> Decoder::finite(LayerId layer, std::string_view name, std::vector<Half> rows, std::size_t cols) {
  const auto broken = std::ranges::find_if(rows, [](Half x) { return !is_finite(x); });
  if (broken != rows.end())
    throw UserError(
        fmt::format("layer {}: {} of token {} of the step is {}: the model's weights are broken or overflow fp16",
                    layer.value, name, static_cast<std::size_t>(broken - rows.begin()) / cols, half_to_float(*broken)));
  return rows;
}

std::vector<float> Decoder::to_host_float(const Tensor& tensor) const {
  std::vector<float> values(tensor.rows * tensor.cols);
  backend_.download(tensor, values);
  return values;
}

Tensor Decoder::from_host(std::span<const Half> values, std::size_t cols) const {
  if (cols == 0 || values.size() % cols != 0) throw InternalError("from_host: values are not whole rows");
  Tensor tensor = backend_.allocate(values.size() / cols, cols);
  backend_.upload(values, tensor);
  return tensor;
}

std::unique_ptr<Decoder> make_decoder(const ModelConfig& config, const WeightSource& weights, Backend& backend,
                                      KvPrecision kv) {
  if (config.fatrelu && config.architecture == Architecture::opt)
    throw UserError("FATReLU replaces the SiLU of a gated network; opt has ReLU and no gate");
  switch (config.architecture) {
    case Architecture::opt:
      return std::make_unique<OptDecoder>(config, weights, backend, kv);
    case Architecture::llama:
    case Architecture::qwen2:
    case Architecture::mistral:
    case Architecture::qwen3:
      return std::make_unique<LlamaDecoder>(config, weights, backend, kv);
  }
  throw InternalError("make_decoder: no such architecture");
}

}  // namespace csdsim::host
