#include "host_runtime/core/planner/flash_weights.h"

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

namespace {

RecordFormat format_of(const FlashOptions& options, const ModelShape& model, std::uint32_t drives, Bytes block_size) {
  if (drives == 0) throw InternalError("weights in flash without a drive");
  const bool by_neurons = options.division == NeuronDivision::neurons;
  if (by_neurons && options.choice != NeuronReads::predicted)
    throw InternalError("drives divide the neurons of a layer, some of which stay in memory");
  return {.layers = by_neurons ? model.layers : (model.layers + drives - 1) / drives,
          .neurons = by_neurons ? (model.ffn + drives - 1) / drives : model.ffn,
          .matrices = model.ffn_matrices,
          .row = {std::uint64_t{model.width} * model.element_bytes},
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
      memory_rows_(rows_of(options, whole(inputs), directory_.format().neuron())) {
  if (predicts()) return;
  const ModelShape model = whole(inputs);
  const Bytes networks = row() * model.ffn * model.layers, others = model.weight_bytes() - networks;
  const std::uint64_t resident = options.resident_share.floor_of(model.weight_bytes().value);
  if (resident >= others.value) {
    const std::uint64_t neurons = (resident - others.value) / (row().value * model.layers);
    resident_neurons_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(neurons, model.ffn));
    return;
  }
  if (options.attention_resident) return;
  const double in_flash = 1 - static_cast<double>(resident) / static_cast<double>(others.value);
  const auto part = [&](Bytes of) {
    return Bytes{static_cast<std::uint64_t>(in_flash * static_cast<double>(of.value))};
  };
  const Bytes of_layer = model.layer_weight_bytes() - row() * model.ffn;
  layer_rest_ = part(of_layer);
  tables_ = part(others - of_layer * model.layers);
}

std::uint64_t FlashWeights::blocks_of(Bytes bytes) const {
  const std::uint64_t block = directory_.format().block_size.value;
  return (bytes.value + block - 1) / block;
}

Extent FlashWeights::rest_of(LayerId layer) const {
  const std::uint64_t blocks = blocks_of(layer_rest_);
  return {directory_.blocks() + on_drive(layer).value * blocks, blocks};
}

Extent FlashWeights::table_blocks() const {
  return {directory_.blocks() + directory_.format().layers * blocks_of(layer_rest_), blocks_of(tables_)};
}

Bytes FlashWeights::in_blocks() const {
  return (row() * (model_.ffn - resident_neurons_) + layer_rest_) * model_.layers + tables_;
}

std::uint64_t FlashWeights::blocks(DriveIndex drive) const {
  if (!divides_neurons() && drive.value >= model_.layers) return 0;
  return drive.value == 0 ? table_blocks().end() : table_blocks().first;
}

Bytes FlashWeights::predictors() const {
  if (!predicts()) return {};
  return {std::uint64_t{predictor_rank()} * (model_.width + model_.ffn) * model_.element_bytes * model_.layers};
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
