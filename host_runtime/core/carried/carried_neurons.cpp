#include "host_runtime/core/carried/carried_neurons.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

CarriedNeurons::CarriedNeurons(const FlashWeights& weights, const Decoder& decoder, const WeightSource& source,
                               std::shared_ptr<const NeuronPredictor> predictor)
    : weights_(weights),
      decoder_(decoder),
      rows_(decoder.config(), source, weights.options().quantisation),
      predictor_(std::move(predictor)) {
  if (!predictor_) predictor_ = std::make_shared<OraclePredictor>(decoder);
  if (rows_.matrices() != format().matrices || rows_.row() != format().row)
    throw InternalError("a record has other rows than the model has matrices");
  if (weights_.predicts()) neurons_.emplace(weights_);
}

void CarriedNeurons::load_layer(LayerId layer, std::span<std::byte> bytes) const {
  const LayerId number = weights_.on_drive(layer);
  const Bytes start = format().block_size * weights_.directory().layer(number).first;
  for (std::uint32_t neuron = 0; neuron < format().neurons; ++neuron)
    for (std::uint32_t matrix = 0; matrix < format().matrices; ++matrix) {
      const Bytes at = weights_.directory().address(number, neuron, matrix) - start;
      rows_.read(layer, neuron, matrix, bytes.subspan(at.value, format().row.value));
    }
}

std::optional<Work> CarriedNeurons::resolve(const Operation& op) const {
  return neurons_ ? neurons_->resolve(op) : std::nullopt;
}

void CarriedNeurons::select(LayerId layer, const Tensor& inputs) {
  std::vector<bool> chosen(format().neurons);
  for (const std::vector<std::uint32_t>& of_token : predictor_->predict(layer, inputs))
    for (const std::uint32_t neuron : of_token) chosen.at(neuron) = true;
  std::vector<std::uint32_t> active;
  for (std::uint32_t neuron = 0; neuron < chosen.size(); ++neuron)
    if (chosen[neuron]) active.push_back(neuron);
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
  rows_.read(layer, neuron, matrix, written);
  if (std::ranges::equal(row, written)) return;
  if (wrong_rows_++ == 0) first_wrong_ = fmt::format("layer {}, neuron {}, matrix {}", layer.value, neuron, matrix);
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

FeedForwardWeights CarriedNeurons::loaded(LayerId layer, const NeuronRowSource::Matrices& matrices) const {
  std::vector<Weight> weights;
  for (std::uint32_t i = 0; i < matrices.size(); ++i)
    weights.push_back(decoder_.backend().load(rows_.tensor(layer, i, matrices[i])));
  FeedForwardWeights all;
  all.up = std::move(weights.front());
  all.down = std::move(weights.back());
  if (weights.size() == 3) all.gate = std::move(weights[1]);
  return all;
}

FeedForwardWeights CarriedNeurons::in_memory(LayerId layer, const NeuronRows& rows) const {
  const NeuronMemory& memory = neurons_.value().memory(layer);
  NeuronRowSource::Matrices matrices = rows_.zeros();
  for (std::uint32_t row = 0; row < memory.used(); ++row) {
    const auto record = std::span(rows.bytes).subspan(weights_.row().value * row, weights_.row().value);
    for (std::uint32_t matrix = 0; matrix < format().matrices; ++matrix)
      rows_.place(matrices, memory.neuron_at(row), matrix,
                  record.subspan(format().row.value * matrix, format().row.value));
  }
  return loaded(layer, matrices);
}

FeedForwardWeights CarriedNeurons::whole(LayerId layer, const ArrivedRecords& arrived) {
  NeuronRowSource::Matrices matrices = rows_.zeros();
  const std::vector<Extent> extents = weights_.all_records(layer);
  std::vector<std::byte> own(format().row.value);
  for (std::uint32_t neuron = 0; neuron < format().neurons; ++neuron)
    for (std::uint32_t matrix = 0; matrix < format().matrices; ++matrix) {
      if (neuron < weights_.resident_neurons()) {
        rows_.read(layer, neuron, matrix, own);
        rows_.place(matrices, neuron, matrix, own);
        continue;
      }
      const std::size_t request = extents.size() == 1 ? 0 : matrix;
      const Bytes start = format().block_size * extents.at(request).first;
      const Bytes at = weights_.directory().address(weights_.on_drive(layer), neuron, matrix) - start;
      const auto row = std::span(arrived.requests.at(request)).subspan(at.value, format().row.value);
      compare(layer, neuron, matrix, row);
      rows_.place(matrices, neuron, matrix, row);
    }
  return loaded(layer, matrices);
}

}  // namespace csdsim::host
