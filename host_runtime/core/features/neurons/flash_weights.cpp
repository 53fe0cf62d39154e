#include "host_runtime/core/features/neurons/flash_weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rounding.h"

namespace csdsim::host {

namespace {

RecordFormat format_of(const FlashOptions& options, const ModelShape& model, std::uint32_t drives, Bytes block_size) {
  if (drives == 0) throw InternalError("weights in flash without a drive");
  const bool by_neurons = options.division == NeuronDivision::neurons;
  if (by_neurons && options.choice != NeuronReads::predicted)
    throw InternalError("drives divide the neurons of a layer, some of which stay in memory");
  return {.layers = by_neurons ? model.layers : static_cast<std::uint32_t>(ceil_div(model.layers, drives)),
          .neurons = by_neurons ? static_cast<std::uint32_t>(ceil_div(model.ffn, drives)) : model.ffn,
          .matrices = model.ffn_matrices,
          .row = options.quantisation.row(model.width, model.element_bytes),
          .layout = options.layout,
          .aligned = options.aligned,
          .block_size = block_size};
}

std::uint32_t rows_of(const FlashOptions& options, const ModelShape& model, Bytes row) {
  if (options.choice != NeuronReads::predicted || options.in_drives) return 0;
  const std::uint64_t rows =
      options.memory ? options.memory->value / (row.value * model.layers) : options.memory_share.floor_of(model.ffn);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(rows, model.ffn));
}

std::vector<std::uint32_t> ranks_of(const FlashOptions& options, const PlannerInputs& inputs) {
  if (!options.predictor_rank.empty()) return options.predictor_rank;
  if (!inputs.predictor_rank.empty()) return inputs.predictor_rank;
  return {kPredictorRank};
}

Bytes others_of(const ModelShape& model) {
  return model.weight_bytes() - Bytes{model.ffn_parameters() * model.element_bytes} * model.layers;
}

/// The model of which a sampled run has some layers.
ModelShape whole(const PlannerInputs& inputs) {
  ModelShape model = inputs.model;
  if (inputs.whole_layers > 0) model.layers = inputs.whole_layers;
  return model;
}

}  // namespace

FlashWeights::FlashWeights(const FlashOptions& options, const PlannerInputs& inputs)
    : options_(options),
      model_(inputs.model),
      drives_(inputs.drives),
      directory_(format_of(options, inputs.model, inputs.drives, inputs.block_size)),
      memory_rows_(rows_of(options, whole(inputs), directory_.format().neuron())),
      predictor_rank_(ranks_of(options, inputs)) {
  const ModelShape model = whole(inputs);
  const Bytes networks = row() * model.ffn * model.layers;
  const Bytes others = others_of(model);
  const std::uint64_t resident = options.resident_share.floor_of((others + networks).value);
  if (resident >= others.value) {
    if (predicts()) return;
    const std::uint64_t neurons = (resident - others.value) / (row().value * model.layers);
    resident_neurons_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(neurons, model.ffn));
    return;
  }
  if (options.attention_resident) return;
  in_flash_ = 1 - static_cast<double>(resident) / static_cast<double>(others.value);
  const auto part = [&](Bytes of) {
    return Bytes{static_cast<std::uint64_t>(in_flash_ * static_cast<double>(of.value))};
  };
  const Bytes of_layer = model.layer_weight_bytes() - Bytes{model.ffn_parameters() * model.element_bytes};
  layer_rest_ = part(of_layer);
  const Bytes tables = others - of_layer * model.layers;
  tables_ = part(tables);
  head_ = part(tables - table_row() * (model.positions + (model.tied_embeddings ? 0 : model.vocab)));
}

Bytes FlashWeights::table_row() const { return {std::uint64_t{model_.width} * model_.element_bytes}; }

std::uint64_t FlashWeights::blocks_of(Bytes bytes) const {
  return ceil_div(bytes.value, directory_.format().block_size.value);
}

Extent FlashWeights::rest_of(LayerId layer) const {
  const std::uint64_t blocks = blocks_of(layer_rest_);
  return {directory_.blocks() + on_drive(layer).value * blocks, blocks};
}

Extent FlashWeights::table_blocks() const {
  return {directory_.blocks() + directory_.format().layers * blocks_of(layer_rest_), blocks_of(tables_)};
}

Extent FlashWeights::head_blocks() const { return {table_blocks().first, blocks_of(head_)}; }

std::vector<Extent> FlashWeights::looked_up(std::uint64_t tokens) const {
  std::vector<Extent> extents;
  const std::uint64_t block = directory_.format().block_size.value;
  const auto rows_in_flash = [&](std::uint64_t rows) {
    return static_cast<std::uint64_t>(in_flash_ * static_cast<double>(rows));
  };
  std::uint64_t read = 0;  // blocks before it are read already
  const auto look_up = [&](Bytes start, std::uint64_t rows) {
    const auto wanted = std::min(rows, static_cast<std::uint64_t>(std::ceil(in_flash_ * static_cast<double>(tokens))));
    for (std::uint64_t i = 0; i < wanted; ++i) {
      const Bytes at = start + table_row() * (i * rows / wanted);
      const std::uint64_t first = std::max(read, at.value / block), end = blocks_of(at + table_row());
      if (first < end) extents.push_back({table_blocks().first + first, end - first});
      read = std::max(read, end);
    }
  };
  const std::uint64_t vocab = rows_in_flash(model_.vocab);
  look_up(model_.tied_embeddings ? Bytes{} : head_, vocab);
  look_up(head_ + (model_.tied_embeddings ? Bytes{} : table_row() * vocab), rows_in_flash(model_.positions));
  return extents;
}

Bytes FlashWeights::in_blocks() const {
  return (row() * (model_.ffn - resident_neurons_) + layer_rest_) * model_.layers + tables_;
}

Bytes FlashWeights::others() const { return others_of(model_); }

Bytes FlashWeights::on_gpu() const {
  return others() - layer_rest_ * model_.layers - tables_ + row() * resident_neurons_ * model_.layers;
}

ComputeWork FlashWeights::feed_forward(std::uint64_t tokens, std::uint64_t neurons) const {
  ComputeWork work = model_.feed_forward(tokens, neurons);
  const Bytes whole{std::uint64_t{model_.ffn_matrices} * model_.width * model_.element_bytes * neurons};
  work.weights = work.weights - whole + row() * neurons;
  return work;
}

std::uint64_t FlashWeights::blocks(DriveIndex drive) const {
  if (!divides_neurons() && drive.value >= model_.layers) return 0;
  return drive.value == 0 ? table_blocks().end() : table_blocks().first;
}

std::uint32_t FlashWeights::predictor_rank(LayerId layer) const {
  // check_flash() refuses a list of another length; other checks of the same scenario still ask for sizes.
  return predictor_rank_.at(std::min<std::size_t>(layer.value, predictor_rank_.size() - 1));
}

Bytes FlashWeights::predictors() const {
  if (!predicts()) return {};
  std::uint64_t ranks = 0;
  for (LayerId layer{0}; layer.value < model_.layers; ++layer.value) ranks += predictor_rank(layer);
  return {ranks * (model_.width + model_.ffn) * model_.element_bytes};
}

bool FlashWeights::layers_alike() const {
  return tables_.value == 0 && std::ranges::all_of(predictor_rank_, [&](std::uint32_t rank) {
           return !predicts() || rank == predictor_rank_.front();
         });
}

Bytes FlashWeights::layer_buffer() const {
  std::uint64_t blocks = 0;
  for (const Extent& extent : all_records(LayerId{0})) blocks += extent.blocks;
  return directory_.format().block_size * blocks;
}

std::vector<Extent> FlashWeights::all_records(LayerId layer, std::uint32_t part) const {
  if (resident_neurons_ == model_.ffn) return {};
  const RecordFormat& format = directory_.format();
  const bool bundled = format.layout == RecordLayout::bundled;
  const Bytes end_of_last = format.row * (bundled ? format.matrices : 1);
  std::vector<Extent> extents;
  for (std::uint32_t matrix = 0; matrix < (bundled ? 1 : format.matrices); ++matrix) {
    const Bytes start = directory_.address(on_drive(layer), resident_neurons_, matrix);
    const Bytes end = directory_.address(on_drive(layer), neurons_of(part) - 1, matrix) + end_of_last;
    const std::uint64_t first = start.value / format.block_size.value;
    extents.push_back({first, blocks_of(end) - first});
  }
  return extents;
}

}  // namespace csdsim::host
