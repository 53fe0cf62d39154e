#include "host_runtime/core/features/neurons/model/neuron_predictor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/fp16.h"

namespace csdsim::host {
namespace {

float bf16_to_float(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

std::vector<float> values_of(const StoredTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / element_size(tensor.type));
  if (tensor.type == ElementType::f32) {
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
    values[i] = tensor.type == ElementType::f16 ? half_to_float(bits) : bf16_to_float(bits);
  }
  return values;
}

/// A tensor of the predictor of that shape, all of its values finite.
std::vector<float> read(const WeightSource& source, const std::string& name, const std::vector<std::uint64_t>& shape) {
  const StoredTensor tensor = source.tensor(name);
  if (tensor.shape != shape) {
    throw UserError(fmt::format("{}: tensor '{}' has shape [{}], the model needs [{}]", source.description(), name,
                                fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
  }
  std::vector<float> values = values_of(tensor);
  if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); }))
    throw UserError(fmt::format("{}: tensor '{}' holds a value that is not finite", source.description(), name));
  return values;
}

/// [rows][cols] as [cols][rows].
std::vector<float> transposed(const std::vector<float>& values, std::size_t rows, std::size_t cols) {
  std::vector<float> result(values.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c) result[c * rows + r] = values[r * cols + c];
  return result;
}

/// y += a x.
void add_scaled(float a, std::span<const float> x, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += a * x[i];
}

/// The indices of the columns at which `chosen` holds, for each row of `values` [tokens][cols].
template <class Chosen>
ActiveNeurons columns_of(std::span<const float> values, std::size_t cols, Chosen chosen) {
  ActiveNeurons active(values.size() / cols);
  for (std::size_t token = 0; token < active.size(); ++token)
    for (std::uint32_t neuron = 0; neuron < cols; ++neuron)
      if (chosen(values[token * cols + neuron])) active[token].push_back(neuron);
  return active;
}

}  // namespace

ActiveNeurons OraclePredictor::predict(LayerId layer, const Tensor& inputs) const {
  const Tensor inner = decoder_.neuron_activations(layer, inputs);
  return columns_of(decoder_.to_host_float(inner), inner.cols, [](float value) { return value != 0; });
}

LowRankWeights LowRankWeights::load(const WeightSource& source, const ModelConfig& config) {
  LowRankWeights weights{.rank = 0, .ffn = config.ffn, .layers = {}};
  const StoredTensor first = source.tensor("layers.0.down");
  if (first.shape.size() != 2 || first.shape[0] < 1 || first.shape[0] > config.width) {
    throw UserError(
        fmt::format("{}: tensor 'layers.0.down' has shape [{}], the model needs [rank, {}] with a rank of 1 "
                    "to {}",
                    source.description(), fmt::join(first.shape, ", "), config.width, config.width));
  }
  const std::uint64_t rank = first.shape[0];
  weights.rank = static_cast<std::uint32_t>(rank);
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("layers.{}.", i);
    weights.layers.push_back({transposed(read(source, name + "down", {rank, config.width}), rank, config.width),
                              transposed(read(source, name + "up", {config.ffn, rank}), config.ffn, rank),
                              read(source, name + "bias", {config.ffn})});
  }
  if (source.contains(fmt::format("layers.{}.down", config.layers)))
    throw UserError(
        fmt::format("{}: it has more layers than the {} of the model", source.description(), config.layers));
  return weights;
}

void LowRankWeights::check_ranks(std::span<const std::uint32_t> ranks) const {
  if (ranks.size() != 1 && ranks.size() != layers.size())
    throw UserError(
        fmt::format("predictor: {} ranks for {} layers: give one, or one per layer", ranks.size(), layers.size()));
  for (const std::uint32_t each : ranks)
    if (each < 1 || each > rank)
      throw UserError(fmt::format("predictor: rank {} is not from 1 to the {} of its file", each, rank));
}

LowRankPredictor::LowRankPredictor(const Decoder& decoder, std::shared_ptr<const LowRankWeights> weights,
                                   double threshold, std::vector<std::uint32_t> ranks)
    : decoder_(decoder), weights_(std::move(weights)), ranks_(std::move(ranks)) {
  if (!(threshold > 0 && threshold < 1))
    throw UserError(fmt::format("predictor: threshold {} is not between 0 and 1", threshold));
  weights_->check_ranks(ranks_);
  if (ranks_.size() == 1) ranks_.resize(weights_->layers.size(), ranks_.front());
  least_logit_ = static_cast<float>(std::log(threshold / (1 - threshold)));
}

ActiveNeurons LowRankPredictor::predict(LayerId layer, const Tensor& inputs) const {
  return predict(layer, decoder_.to_host_float(inputs));
}

ActiveNeurons LowRankPredictor::predict(LayerId layer, std::span<const float> inputs) const {
  const LowRankWeights::Layer& weights = weights_->layers.at(layer.value);
  const std::size_t rank = weights_->rank, ffn = weights_->ffn, width = weights.down.size() / rank;
  const std::uint32_t used = ranks_.at(layer.value);
  if (inputs.size() % width != 0) throw InternalError("predict: inputs are not whole rows");
  std::vector<float> logits, inner(used);
  for (std::size_t token = 0; token < inputs.size() / width; ++token) {
    std::ranges::fill(inner, 0.0f);
    for (std::size_t i = 0; i < width; ++i)
      add_scaled(inputs[token * width + i], std::span(weights.down).subspan(i * rank, used), inner);
    logits.insert(logits.end(), weights.bias.begin(), weights.bias.end());
    const std::span<float> row = std::span(logits).last(ffn);
    for (std::size_t i = 0; i < used; ++i) add_scaled(inner[i], std::span(weights.up).subspan(i * ffn, ffn), row);
  }
  return columns_of(logits, ffn, [this](float logit) { return logit > least_logit_; });
}

}  // namespace csdsim::host
