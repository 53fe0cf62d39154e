#include "host_runtime/core/features/neurons/model/neuron_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/fp16.h"
#include "host_runtime/core/decoder/weight_loader.h"

namespace csdsim::host {

namespace {

/// Names of the matrices of a layer, in the order of a record: up, gate if there is one, down.
std::vector<std::string> names_of(const ModelConfig& config, const WeightSource& source, std::uint32_t layer) {
  const bool opt = config.architecture == Architecture::opt;
  const std::string at =
      fmt::format("{}layers.{}.", tensor_prefix(source, opt ? "decoder." : "", "embed_tokens.weight"), layer);
  if (opt) return {at + "fc1.weight", at + "fc2.weight"};
  return {at + "mlp.up_proj.weight", at + "mlp.gate_proj.weight", at + "mlp.down_proj.weight"};
}

float element(ElementType type, const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  if (type == ElementType::f16) return half_to_float(bits);
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

}  // namespace

NeuronRowSource::NeuronRowSource(const ModelConfig& config, const WeightSource& source,
                                 const RowQuantisation& quantisation)
    : neurons_(config.ffn), width_(config.width), quantisation_(quantisation) {
  if (config.ffn_biases)
    throw UserError(
        fmt::format("{}: records of neurons of a gated network with biases are not implemented", source.description()));
  for (std::uint32_t layer = 0; layer < config.layers; ++layer) {
    std::vector<Stored>& stored = layers_.emplace_back();
    for (std::string& name : names_of(config, source, layer)) {
      const StoredTensor tensor = source.tensor(name);
      if (element_size(tensor.type) != kElement)
        throw UserError(fmt::format("{}: tensor '{}' has elements of {} bytes; records on drives hold 2 bytes each",
                                    source.description(), name, element_size(tensor.type)));
      stored.push_back({std::move(name), tensor});
    }
    matrices_ = static_cast<std::uint32_t>(stored.size());
  }
}

void NeuronRowSource::read(LayerId layer, std::uint32_t neuron, std::uint32_t matrix, std::span<std::byte> to) const {
  const StoredTensor& stored = layers_.at(layer.value).at(matrix).tensor;
  // Row-major: a row of up or gate is contiguous, a column of down has the stride of a row.
  const std::size_t first = is_down(matrix) ? neuron : std::size_t{neuron} * width_;
  const std::size_t step = is_down(matrix) ? neurons_ : 1;
  const std::byte* from = stored.bytes.data() + first * kElement;
  if (!quantisation_.quantised()) {
    for (std::size_t i = 0; i < width_; ++i, from += step * kElement)
      std::copy_n(from, kElement, to.begin() + static_cast<std::ptrdiff_t>(i * kElement));
    return;
  }
  std::vector<float> values(width_);
  for (float& value : values) {
    value = element(stored.type, from);
    from += step * kElement;
  }
  quantisation_.quantise(values, to);
}

void NeuronRowSource::place(Matrices& matrices, std::uint32_t neuron, std::uint32_t matrix,
                            std::span<const std::byte> row) const {
  std::vector<Half> halves;
  if (quantisation_.quantised()) {
    std::vector<float> values(width_);
    quantisation_.dequantise(row, values);
    halves.resize(width_);
    floats_to_halves(values, halves);
    row = std::as_bytes(std::span(halves));
  }
  const std::size_t first = is_down(matrix) ? neuron : std::size_t{neuron} * width_;
  const std::size_t step = is_down(matrix) ? neurons_ : 1;
  std::vector<std::byte>& to = matrices.at(matrix);
  for (std::size_t i = 0; i < width_; ++i)
    std::copy_n(row.begin() + static_cast<std::ptrdiff_t>(i * kElement), kElement,
                to.begin() + static_cast<std::ptrdiff_t>((first + i * step) * kElement));
}

NeuronRowSource::Matrices NeuronRowSource::zeros() const {
  return Matrices(matrices_, std::vector<std::byte>(std::size_t{kElement} * width_ * neurons_));
}

StoredTensor NeuronRowSource::tensor(LayerId layer, std::uint32_t matrix, std::span<const std::byte> bytes) const {
  const StoredTensor& stored = layers_.at(layer.value).at(matrix).tensor;
  return {quantisation_.quantised() ? ElementType::f16 : stored.type, stored.shape, bytes};
}

std::vector<std::byte> NeuronRowSource::rounded(LayerId layer, std::uint32_t matrix) const {
  Matrices all(matrices_);
  all[matrix].resize(std::size_t{kElement} * width_ * neurons_);
  std::vector<std::byte> bytes(row().value);
  for (std::uint32_t neuron = 0; neuron < neurons_; ++neuron) {
    read(layer, neuron, matrix, bytes);
    place(all, neuron, matrix, bytes);
  }
  return std::move(all[matrix]);
}

RoundedWeights::RoundedWeights(const ModelConfig& config, const WeightSource& source,
                               const RowQuantisation& quantisation)
    : source_(source), rows_(config, source, quantisation) {
  for (LayerId layer{0}; layer.value < config.layers; ++layer.value)
    for (std::uint32_t matrix = 0; matrix < rows_.matrices(); ++matrix)
      places_.emplace(rows_.name(layer, matrix), Matrix{layer, matrix});
}

StoredTensor RoundedWeights::tensor(std::string_view name) const {
  const auto at = places_.find(name);
  if (at == places_.end()) return source_.tensor(name);
  const auto [layer, matrix] = at->second;
  const auto [kept, is_new] = rounded_.try_emplace(std::string(name));
  if (is_new) kept->second = rows_.rounded(layer, matrix);
  return rows_.tensor(layer, matrix, kept->second);
}

}  // namespace csdsim::host
