#include "host_runtime/cuda/fused_decoder.h"

#include <cstring>
#include <utility>

namespace csdsim::host::cuda {
namespace {

template <class T>
T* values_of(const Tensor& tensor) {
  return static_cast<CudaTensor<T>&>(*tensor.storage).values.data();
}

}  // namespace

template <class T>
FusedDecoder<T>::FusedDecoder(CudaBackend<T>& backend, Context& context, const ModelConfig& config,
                              const WeightSource& weights)
    : Decoder(config, backend, KvPrecision::f16), context_(context), parts_(context, config, weights) {
  for (std::uint32_t i = 0; i < config.layers; ++i) layers_.push_back(parts_.load_layer(i));
  parts_.check_all_loaded();
}

template <class T>
const std::uint32_t* FusedDecoder<T>::on_device(std::span<const TokenIndex> positions) const {
  std::vector<std::uint32_t> values;
  for (const TokenIndex position : positions) values.push_back(position.value);
  if (values != positions_) {
    device_positions_ = DeviceBuffer<std::uint32_t>(context_.pool, values.size());
    copy_to_device(context_.stream, std::span<const std::uint32_t>(values), device_positions_.data());
    positions_ = std::move(values);
  }
  return device_positions_.data();
}

template <class T>
Tensor FusedDecoder<T>::product(const Tensor& x, Matrix<T> matrix, const Weight* own, bool relu) const {
  if (own != nullptr) matrix.weight = static_cast<const CudaWeight<T>&>(*own->storage).values.data();
  Tensor out = backend().allocate(x.rows, matrix.rows);
  compute([&] { parts_.template linear<T>(values_of<T>(x), matrix, x.rows, relu, nullptr, values_of<T>(out)); });
  return out;
}

template <class T>
HiddenStates FusedDecoder<T>::do_embed(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) const {
  std::vector<std::uint32_t> ids;
  for (const TokenId token : tokens) ids.push_back(token.value);
  const DeviceBuffer<std::uint32_t> device_ids(context_.pool, ids.size());
  copy_to_device(context_.stream, std::span<const std::uint32_t>(ids), device_ids.data());
  HiddenStates hidden{backend().allocate(tokens.size(), config().width), {positions.begin(), positions.end()}};
  const std::uint32_t* const at = on_device(positions);
  compute([&] { parts_.embed(device_ids.data(), at, tokens.size(), values_of<T>(hidden.values)); });
  return hidden;
}

template <class T>
AttentionInputs FusedDecoder<T>::attention_inputs(LayerId layer, const HiddenStates& hidden) const {
  const LayerWeights<T>& weights = layers_.at(layer.value);
  const ModelConfig& c = config();
  const std::size_t rows = hidden.values.rows;
  const DeviceBuffer<T> normed(context_.pool, rows * c.width), qkv(context_.pool, rows * parts_.qkv_width());
  AttentionInputs inputs{backend().allocate(rows, c.q_width()), backend().allocate(rows, c.kv_width()),
                         backend().allocate(rows, c.kv_width())};
  const std::uint32_t* const positions = on_device(hidden.positions);
  parts_.set_context(hidden.context);
  compute([&] {
    parts_.normalise(values_of<T>(hidden.values), weights.attention_norm, rows, normed.data());
    parts_.project(weights, normed.data(), rows, qkv.data());
    split_rows<T>(context_.stream, qkv.data(), positions, parts_.rotation(), rows, {c.heads, c.kv_heads, c.head_dim, 0},
                  values_of<T>(inputs.q), values_of<T>(inputs.k), values_of<T>(inputs.v));
    round_kv(inputs.k, inputs.v);
  });
  return inputs;
}

template <class T>
KeysValues FusedDecoder<T>::keys_values(LayerId layer, const HiddenStates& hidden) const {
  // A product of other columns may have other bits.
  AttentionInputs inputs = attention_inputs(layer, hidden);
  return {std::move(inputs.k), std::move(inputs.v)};
}

template <class T>
void FusedDecoder<T>::finish_attention(LayerId layer, HiddenStates& hidden, const Tensor& attention_output) const {
  T* const x = values_of<T>(hidden.values);
  compute([&] {
    parts_.template linear<T>(values_of<T>(attention_output), layers_.at(layer.value).out, hidden.values.rows, false, x,
                              x);
  });
}

template <class T>
Tensor FusedDecoder<T>::feed_forward_inputs(LayerId layer, const HiddenStates& hidden) const {
  Tensor normed = backend().allocate(hidden.values.rows, config().width);
  compute([&] {
    parts_.normalise(values_of<T>(hidden.values), layers_.at(layer.value).ffn_norm, normed.rows, values_of<T>(normed));
  });
  return normed;
}

template <class T>
Tensor FusedDecoder<T>::neuron_activations(LayerId layer, const Tensor& inputs,
                                           const FeedForwardWeights* weights) const {
  const LayerWeights<T>& own = layers_.at(layer.value);
  const std::uint32_t ffn = config().ffn;
  if (weights == nullptr) {
    Tensor inner = backend().allocate(inputs.rows, ffn);
    const DeviceBuffer<T> both(context_.pool, parts_.needs_both(inputs.rows) ? 2 * inputs.rows * ffn : 0);
    compute([&] { parts_.activate(own, values_of<T>(inputs), inputs.rows, both.data(), values_of<T>(inner)); });
    return inner;
  }
  if (!parts_.gated()) return product(inputs, own.up, &weights->up, true);
  const Matrix<T> up = own.up.from(ffn);
  Matrix<T> gate = up;
  gate.bias = own.up.bias;
  Tensor inner = product(inputs, gate, &weights->gate, false);
  const Tensor other = product(inputs, up, &weights->up, false);
  compute([&] { backend().swiglu(inner, other); });
  return inner;
}

template <class T>
Tensor FusedDecoder<T>::project_down(LayerId layer, const Tensor& inner, const FeedForwardWeights* own) const {
  return product(inner, layers_.at(layer.value).down, own == nullptr ? nullptr : &own->down, false);
}

template <class T>
void FusedDecoder<T>::finish_feed_forward(LayerId layer, HiddenStates& hidden, const Tensor& inner,
                                          const FeedForwardWeights* own) const {
  Matrix<T> down = layers_.at(layer.value).down;
  if (own != nullptr) down.weight = static_cast<const CudaWeight<T>&>(*own->down.storage).values.data();
  T* const x = values_of<T>(hidden.values);
  compute([&] { parts_.template linear<T>(values_of<T>(inner), down, inner.rows, false, x, x); });
}

template <class T>
void FusedDecoder<T>::add_feed_forward(LayerId, HiddenStates& hidden, const Tensor& output) const {
  compute([&] { backend().add(hidden.values, output); });
}

template <class T>
std::vector<float> FusedDecoder<T>::logits(const HiddenStates& hidden, std::span<const std::uint32_t> rows) const {
  const Tensor normed = backend().allocate(rows.size(), config().width);
  Tensor chosen = backend().allocate(rows.size(), config().width);
  backend().select_rows(hidden.values, rows, chosen);
  const DeviceBuffer<float> out(context_.pool, rows.size() * config().vocab);
  compute([&] { parts_.logits(values_of<T>(chosen), rows.size(), values_of<T>(normed), out.data()); });
  std::vector<float> values(out.size());
  const auto arriving = context_.copies.start_out(out.data(), out.size() * sizeof(float));
  std::memcpy(values.data(), arriving->wait().data(), values.size() * sizeof(float));
  return values;
}

template <class T>
std::unique_ptr<Decoder> make_gpu_decoder(CudaBackend<T>& backend, Context& context, const ModelConfig& config,
                                          const WeightSource& weights) {
  if (config.fatrelu || !DecoderParts<T>::unsupported(config).empty()) return make_decoder(config, weights, backend);
  return std::make_unique<FusedDecoder<T>>(backend, context, config, weights);
}

template class FusedDecoder<__half>;
template class FusedDecoder<__nv_bfloat16>;
template std::unique_ptr<Decoder> make_gpu_decoder(CudaBackend<__half>&, Context&, const ModelConfig&,
                                                   const WeightSource&);
template std::unique_ptr<Decoder> make_gpu_decoder(CudaBackend<__nv_bfloat16>&, Context&, const ModelConfig&,
                                                   const WeightSource&);

}  // namespace csdsim::host::cuda
