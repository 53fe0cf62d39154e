#include "host_runtime/core/carried/carried_neurons.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/weight_loader.h"

namespace csdsim::host {

namespace {

constexpr std::size_t kElement = 2;

/// The name of the bias of a matrix.
std::string bias_of(const std::string& weight) { return weight.substr(0, weight.rfind('.')) + ".bias"; }

/// Names of the matrices of a layer, in the order of a record: up, gate if there is one, down.
std::vector<std::string> names_of(const ModelConfig& config, const WeightSource& source, std::uint32_t layer) {
  const bool opt = config.architecture == Architecture::opt;
  const std::string at =
      fmt::format("{}layers.{}.", tensor_prefix(source, opt ? "decoder." : "", "embed_tokens.weight"), layer);
  if (opt) return {at + "fc1.weight", at + "fc2.weight"};
  return {at + "mlp.up_proj.weight", at + "mlp.gate_proj.weight", at + "mlp.down_proj.weight"};
}

/// A vector of the checkpoint, whatever its type.
std::vector<float> values_of(const WeightSource& source, const std::string& name) {
  const StoredTensor stored = source.tensor(name);
  const std::size_t size = element_size(stored.type);
  std::vector<float> values(stored.bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::byte* const from = stored.bytes.data() + i * size;
    if (stored.type == ElementType::f32) {
      std::memcpy(&values[i], from, size);
      continue;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, size);
    values[i] =
        stored.type == ElementType::f16 ? half_to_float(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16U);
  }
  return values;
}

}  // namespace

CarriedNeurons::CarriedNeurons(const FlashWeights& weights, const Decoder& decoder, const WeightSource& source,
                               std::shared_ptr<const NeuronPredictor> predictor)
    : weights_(weights), decoder_(decoder), predictor_(std::move(predictor)) {
  if (!predictor_) predictor_ = std::make_shared<OraclePredictor>(decoder);
  for (std::uint32_t layer = 0; layer < decoder.config().layers; ++layer) {
    Stored& stored = layers_.emplace_back();
    for (const std::string& name : names_of(decoder.config(), source, layer)) {
      const StoredTensor tensor = source.tensor(name);
      if (element_size(tensor.type) != kElement)
        throw UserError(fmt::format("{}: tensor '{}' has elements of {} bytes; records on drives hold 2 bytes each",
                                    source.description(), name, element_size(tensor.type)));
      if (weights_.options().in_drives && tensor.type != ElementType::f16)
        throw UserError(
            fmt::format("{}: tensor '{}' is not fp16, in which drives compute", source.description(), name));
      stored.matrices.push_back(tensor);
    }
    if (stored.matrices.size() != format().matrices)
      throw InternalError("a record has another number of rows than the model has matrices");
    if (weights_.model().biases != Biases::all) continue;
    const std::vector<std::string> names = names_of(decoder.config(), source, layer);
    stored.up_bias = values_of(source, bias_of(names.front()));
    stored.down_bias = values_of(source, bias_of(names.back()));
  }
  if (!weights_.predicts()) return;
  if (weights_.options().in_drives)
    in_drives_.emplace(weights_);
  else
    neurons_.emplace(weights_);
}

void CarriedNeurons::copy_row(LayerId layer, std::uint32_t neuron, std::uint32_t matrix,
                              std::span<std::byte> to) const {
  const StoredTensor& stored = layers_.at(layer.value).matrices.at(matrix);
  if (!is_down(matrix)) {
    std::ranges::copy(stored.bytes.subspan(neuron * to.size(), to.size()), to.begin());
    return;
  }
  const std::size_t columns = stored.shape.back();
  for (std::size_t i = 0; i < to.size() / kElement; ++i)
    std::ranges::copy(stored.bytes.subspan((i * columns + neuron) * kElement, kElement),
                      to.begin() + static_cast<std::ptrdiff_t>(i * kElement));
}

void CarriedNeurons::set_row(Matrices& matrices, std::uint32_t neuron, std::uint32_t matrix,
                             std::span<const std::byte> row) const {
  std::vector<std::byte>& to = matrices.at(matrix);
  if (!is_down(matrix)) {
    std::ranges::copy(row, to.begin() + static_cast<std::ptrdiff_t>(neuron * row.size()));
    return;
  }
  const std::size_t columns = weights_.model().ffn;
  for (std::size_t i = 0; i < row.size() / kElement; ++i)
    std::ranges::copy(row.subspan(i * kElement, kElement),
                      to.begin() + static_cast<std::ptrdiff_t>((i * columns + neuron) * kElement));
}

void CarriedNeurons::load_layer(LayerId layer, DriveIndex drive, std::span<std::byte> bytes) const {
  const Bytes start = format().block_size * weights_.directory().layer(weights_.on_drive(layer)).first;
  const std::uint32_t part = weights_.divides_neurons() ? drive.value : 0;
  for (std::uint32_t neuron = part; neuron < weights_.model().ffn; neuron += weights_.parts())
    for (std::uint32_t matrix = 0; matrix < format().matrices; ++matrix) {
      const Bytes at = weights_.address(layer, neuron, matrix) - start;
      copy_row(layer, neuron, matrix, bytes.subspan(at.value, format().row.value));
    }
}

std::optional<Work> CarriedNeurons::resolve(const Operation& op) const {
  if (!in_drives_) return neurons_ ? neurons_->resolve(op) : std::nullopt;
  std::optional<Work> work = in_drives_->resolve(op);
  if (work && decoder_.config().fatrelu)
    std::get<NeuronWork>(*work).threshold = static_cast<float>(decoder_.config().fatrelu->value());
  return work;
}

void CarriedNeurons::select(LayerId layer, MiniBatch mini_batch, const Tensor& inputs) {
  std::vector<bool> chosen(weights_.model().ffn);
  for (const std::vector<std::uint32_t>& of_token : predictor_->predict(layer, inputs))
    for (const std::uint32_t neuron : of_token) chosen.at(neuron) = true;
  std::vector<std::uint32_t> active;
  for (std::uint32_t neuron = 0; neuron < chosen.size(); ++neuron)
    if (chosen[neuron]) active.push_back(neuron);
  if (in_drives_)
    in_drives_->step(layer, mini_batch, active);
  else
    neurons_.value().step(layer, active);
}

NeuronRows CarriedNeurons::empty_rows() const {
  return {std::vector<std::byte>(weights_.row().value * weights_.memory_rows())};
}

void CarriedNeurons::delete_rows(LayerId layer, NeuronRows& rows) const {
  const auto row = static_cast<std::ptrdiff_t>(weights_.row().value);
  for (const NeuronMemory::Move& move : neurons_.value().latest(layer).update.moves)
    std::copy_n(rows.bytes.begin() + move.from * row, row, rows.bytes.begin() + move.to * row);
}

void CarriedNeurons::compare(LayerId layer, std::uint32_t neuron, std::uint32_t matrix,
                             std::span<const std::byte> row) {
  std::vector<std::byte> written(row.size());
  copy_row(layer, neuron, matrix, written);
  if (!std::ranges::equal(row, written))
    found_wrong(wrong_rows_, fmt::format("layer {}, neuron {}, matrix {}", layer.value, neuron, matrix));
}

void CarriedNeurons::found_wrong(std::uint64_t& count, std::string where) {
  if (wrong_rows_ + wrong_sums_ == 0) first_wrong_ = std::move(where);
  ++count;
}

void CarriedNeurons::insert_rows(LayerId layer, const ArrivedRecords& arrived, NeuronRows& rows) {
  const NeuronStep& step = neurons_.value().latest(layer);
  for (std::size_t i = 0; i < step.reads.size(); ++i) {
    const std::span<const std::byte> data = arrived.requests.at(i);
    for (const RecordPart& part : step.reads[i].parts) {
      const auto row = data.subspan(part.offset.value, format().row.value);
      compare(layer, part.neuron, part.matrix, row);
      const std::size_t at =
          weights_.row().value * neurons_->memory(layer).row_of(part.neuron) + format().row.value * part.matrix;
      std::ranges::copy(row, rows.bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
}

CarriedNeurons::Matrices CarriedNeurons::zeros() const {
  return Matrices(format().matrices, std::vector<std::byte>(format().row.value * weights_.model().ffn));
}

FeedForwardWeights CarriedNeurons::loaded(LayerId layer, const Matrices& matrices) const {
  std::vector<Weight> weights;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const StoredTensor& stored = layers_.at(layer.value).matrices[i];
    weights.push_back(decoder_.backend().load({stored.type, stored.shape, matrices[i]}));
  }
  FeedForwardWeights all;
  all.up = std::move(weights.front());
  all.down = std::move(weights.back());
  if (weights.size() == 3) all.gate = std::move(weights[1]);
  return all;
}

FeedForwardWeights CarriedNeurons::in_memory(LayerId layer, const NeuronRows& rows) const {
  const NeuronMemory& memory = neurons_.value().memory(layer);
  Matrices matrices = zeros();
  for (std::uint32_t row = 0; row < memory.used(); ++row) {
    const auto record = std::span(rows.bytes).subspan(weights_.row().value * row, weights_.row().value);
    for (std::uint32_t matrix = 0; matrix < format().matrices; ++matrix)
      set_row(matrices, memory.neuron_at(row), matrix, record.subspan(format().row.value * matrix, format().row.value));
  }
  return loaded(layer, matrices);
}

FeedForwardWeights CarriedNeurons::whole(LayerId layer, const std::vector<const ArrivedRecords*>& arrived) {
  Matrices matrices = zeros();
  const std::vector<Extent> extents = weights_.all_records(layer);
  std::vector<std::byte> own(format().row.value);
  for (std::uint32_t neuron = 0; neuron < weights_.model().ffn; ++neuron)
    for (std::uint32_t matrix = 0; matrix < format().matrices; ++matrix) {
      if (neuron < weights_.resident_neurons()) {
        copy_row(layer, neuron, matrix, own);
        set_row(matrices, neuron, matrix, own);
        continue;
      }
      const std::size_t request = extents.size() == 1 ? 0 : matrix;
      const Bytes start = format().block_size * extents.at(request).first;
      const Bytes at = weights_.address(layer, neuron, matrix) - start;
      const ArrivedRecords& part = *arrived.at(neuron % weights_.parts());
      const auto row = std::span(part.requests.at(request)).subspan(at.value, format().row.value);
      compare(layer, neuron, matrix, row);
      set_row(matrices, neuron, matrix, row);
    }
  return loaded(layer, matrices);
}

void CarriedNeurons::load_biases(const Operation& op, std::uint32_t first, std::span<Half> bias) const {
  const std::vector<float>& all = layers_.at(op.tag.layer->value).up_bias;
  const std::vector<std::uint32_t>& neurons = in_drives_.value().of(op);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = float_to_half(all.at(neurons.at(first + i)));
}

void CarriedNeurons::check_sum(const Operation& op, std::span<const Half> x, std::span<const float> y) {
  if (!sums_) return;
  const auto& work = std::get<NeuronWork>(op.work);
  const std::vector<std::uint32_t>& neurons = in_drives_.value().of(op);
  std::vector<Half> rows(neurons.size() * weights_.row().value / kElement), bias(work.bias ? neurons.size() : 0);
  auto bytes = std::as_writable_bytes(std::span(rows));
  for (const std::uint32_t neuron : neurons)
    for (std::uint32_t matrix = 0; matrix < format().matrices; ++matrix) {
      copy_row(*op.tag.layer, neuron, matrix, bytes.first(format().row.value));
      bytes = bytes.subspan(format().row.value);
    }
  load_biases(op, 0, bias);
  // By their bits: a sum that is not a number equals itself.
  const std::vector<float> expected = sums_(work, x, rows, bias);
  if (!std::ranges::equal(std::as_bytes(std::span(expected)), std::as_bytes(y)))
    found_wrong(wrong_sums_,
                fmt::format("layer {}, drive {}, decode step {}", op.tag.layer->value, op.resource.index, op.tag.step));
}

std::vector<float> CarriedNeurons::output_bias(LayerId layer) const { return layers_.at(layer.value).down_bias; }

}  // namespace csdsim::host
