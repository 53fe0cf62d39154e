#include "host_runtime/core/features/neurons/carried_neurons.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

namespace {

/// The name of the bias of a matrix.
std::string bias_of(const std::string& weight) { return weight.substr(0, weight.rfind('.')) + ".bias"; }

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

/// All neurons of several tokens, ascending.
std::vector<std::uint32_t> united(std::span<const std::vector<std::uint32_t>> of_tokens) {
  std::vector<std::uint32_t> all;
  for (const std::vector<std::uint32_t>& of_token : of_tokens) all.insert(all.end(), of_token.begin(), of_token.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

CarriedNeurons::CarriedNeurons(const FlashWeights& weights, const Decoder& decoder, const WeightSource& source,
                               std::shared_ptr<const NeuronPredictor> predictor)
    : weights_(weights),
      decoder_(decoder),
      rows_(decoder.config(), source, weights.options().quantisation),
      predictor_(std::move(predictor)),
      drafted_(decoder.config().layers) {
  if (!predictor_) predictor_ = std::make_shared<OraclePredictor>(decoder);
  if (rows_.matrices() != format().matrices || rows_.row() != format().row)
    throw InternalError("a record has other rows than the model has matrices");
  if (weights_.options().in_drives) check_fp16(source);
  for (LayerId layer{0}; weights_.model().biases == Biases::all && layer.value < decoder.config().layers; ++layer.value)
    biases_.push_back({values_of(source, bias_of(rows_.name(layer, 0))),
                       values_of(source, bias_of(rows_.name(layer, rows_.matrices() - 1)))});
  if (!weights_.predicts()) return;
  if (weights_.options().in_drives)
    in_drives_.emplace(weights_);
  else
    neurons_.emplace(weights_);
}

void CarriedNeurons::check_fp16(const WeightSource& source) const {
  for (LayerId layer{0}; layer.value < decoder_.config().layers; ++layer.value)
    for (std::uint32_t matrix = 0; matrix < rows_.matrices(); ++matrix)
      if (const std::string& name = rows_.name(layer, matrix); source.tensor(name).type != ElementType::f16)
        throw UserError(
            fmt::format("{}: tensor '{}' is not fp16, in which drives compute", source.description(), name));
}

void CarriedNeurons::load_layer(LayerId layer, DriveIndex drive, std::span<std::byte> bytes) const {
  const Bytes start = format().block_size * weights_.directory().layer(weights_.on_drive(layer)).first;
  const std::uint32_t part = weights_.divides_neurons() ? drive.value : 0;
  for (std::uint32_t neuron = part; neuron < weights_.model().ffn; neuron += weights_.parts())
    for (std::uint32_t matrix = 0; matrix < format().matrices; ++matrix) {
      const Bytes at = weights_.address(layer, neuron, matrix) - start;
      rows_.read(layer, neuron, matrix, bytes.subspan(at.value, format().row.value));
    }
}

std::optional<Work> CarriedNeurons::resolve(const Operation& op) const {
  if (!in_drives_) return neurons_ ? neurons_->resolve(op) : std::nullopt;
  std::optional<Work> work = in_drives_->resolve(op);
  if (work && decoder_.config().fatrelu)
    std::get<NeuronWork>(*work).threshold = static_cast<float>(decoder_.config().fatrelu->value());
  return work;
}

void CarriedNeurons::select(LayerId layer, MiniBatch mini_batch, const Tensor& inputs,
                            std::span<const StepSequence> sequences, std::span<const std::uint32_t> accepted) {
  const std::vector<std::vector<std::uint32_t>> of_tokens = predictor_->predict(layer, inputs);
  const std::vector<std::uint32_t> active = united(of_tokens);
  if (in_drives_) {
    in_drives_->step(layer, mini_batch, active);
    return;
  }
  // Tokens that stay for certain: the accepted ones of the step before, then the first token of each sequence.
  std::vector<std::vector<std::uint32_t>> kept, first;
  auto row = of_tokens.begin();
  for (std::size_t at = 0; at < sequences.size(); ++at) {
    const StepSequence& s = sequences[at];
    auto& drafted = drafted_.at(layer.value)[s.sequence];
    if (kept.size() < accepted[at]) kept.resize(accepted[at]);
    for (std::uint32_t i = 0; i < accepted[at]; ++i)
      kept[i].insert(kept[i].end(), drafted.at(i).begin(), drafted[i].end());
    first.push_back(*row);
    drafted.assign(row + 1, row + s.tokens);
    row += s.tokens;
  }
  for (std::vector<std::uint32_t>& of_token : kept) of_token = united({&of_token, 1});
  kept.push_back(united(first));
  neurons_.value().step(layer, active, kept);
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

FeedForwardWeights CarriedNeurons::whole(LayerId layer, const std::vector<const ArrivedRecords*>& arrived) {
  NeuronRowSource::Matrices matrices = rows_.zeros();
  const std::vector<Extent> extents = weights_.all_records(layer);
  std::vector<std::byte> own(format().row.value);
  for (std::uint32_t neuron = 0; neuron < weights_.model().ffn; ++neuron)
    for (std::uint32_t matrix = 0; matrix < format().matrices; ++matrix) {
      if (neuron < weights_.resident_neurons()) {
        rows_.read(layer, neuron, matrix, own);
        rows_.place(matrices, neuron, matrix, own);
        continue;
      }
      const std::size_t request = extents.size() == 1 ? 0 : matrix;
      const Bytes start = format().block_size * extents.at(request).first;
      const Bytes at = weights_.address(layer, neuron, matrix) - start;
      const ArrivedRecords& part = *arrived.at(neuron % weights_.parts());
      const auto row = std::span(part.requests.at(request)).subspan(at.value, format().row.value);
      compare(layer, neuron, matrix, row);
      rows_.place(matrices, neuron, matrix, row);
    }
  return loaded(layer, matrices);
}

void CarriedNeurons::load_biases(const Operation& op, std::uint32_t first, std::span<Half> bias) const {
  if (bias.empty()) return;  // the network has none
  const std::vector<float>& all = biases_.at(op.tag.layer->value).up;
  const std::vector<std::uint32_t>& neurons = in_drives_.value().of(op);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = float_to_half(all.at(neurons.at(first + i)));
}

void CarriedNeurons::check_sum(const Operation& op, std::span<const Half> x, std::span<const float> y) {
  if (!sums_) return;
  const auto& work = std::get<NeuronWork>(op.work);
  const std::vector<std::uint32_t>& neurons = in_drives_.value().of(op);
  std::vector<Half> rows(neurons.size() * weights_.row().value / sizeof(Half)), bias(work.bias ? neurons.size() : 0);
  auto bytes = std::as_writable_bytes(std::span(rows));
  for (const std::uint32_t neuron : neurons)
    for (std::uint32_t matrix = 0; matrix < format().matrices; ++matrix) {
      rows_.read(*op.tag.layer, neuron, matrix, bytes.first(format().row.value));
      bytes = bytes.subspan(format().row.value);
    }
  load_biases(op, 0, bias);
  // By their bits: a sum that is not a number equals itself.
  const std::vector<float> expected = sums_(work, x, rows, bias);
  if (!std::ranges::equal(std::as_bytes(std::span(expected)), std::as_bytes(y)))
    found_wrong(wrong_sums_,
                fmt::format("layer {}, drive {}, decode step {}", op.tag.layer->value, op.resource.index, op.tag.step));
}

std::vector<float> CarriedNeurons::output_bias(LayerId layer) const {
  return biases_.empty() ? std::vector<float>{} : biases_.at(layer.value).down;
}

}  // namespace csdsim::host
