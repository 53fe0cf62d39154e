#include "host_runtime/core/features/neurons/model/record_directory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/rounding.h"

namespace csdsim::host {

RecordDirectory::RecordDirectory(const RecordFormat& format) : format_(format) {
  if (format.layers == 0 || format.neurons == 0 || format.matrices == 0 || format.row.value == 0 ||
      format.block_size.value == 0)
    throw InternalError("records of a feed-forward network without layers, neurons, rows or blocks");
  const bool bundled = format.layout == RecordLayout::bundled;
  const std::uint64_t block = format.block_size.value;
  regions_ = bundled ? 1 : format.matrices;
  unit_matrices_ = bundled ? format.matrices : 1;
  unit_ = format.row * unit_matrices_;
  stride_ = format.aligned ? Bytes{ceil_div(unit_.value, block) * block} : unit_;
  region_blocks_ = ceil_div(stride_.value * format.neurons, block);
  layer_blocks_ = region_blocks_ * regions_;
  unit_blocks_ = ceil_div(unit_.value, block);
  // A packed unit may start anywhere in a block, unless all starts are multiples of the block.
  if (stride_.value % block != 0) unit_blocks_ = ceil_div(unit_.value - 1, block) + 1;
}

RecordDirectory::Unit RecordDirectory::unit(LayerId layer, std::uint32_t region, std::uint32_t neuron) const {
  const std::uint64_t first = this->layer(layer).first + region * region_blocks_;
  return {format_.block_size * first + stride_ * neuron, neuron, region};
}

Bytes RecordDirectory::address(LayerId layer, std::uint32_t neuron, std::uint32_t matrix) const {
  if (layer.value >= format_.layers || neuron >= format_.neurons || matrix >= format_.matrices)
    throw InternalError(fmt::format("matrix {} of neuron {} of layer {} has no record", matrix, neuron, layer.value));
  if (format_.layout == RecordLayout::rows) return unit(layer, matrix, neuron).start;
  return unit(layer, 0, neuron).start + format_.row * matrix;
}

void RecordDirectory::add_parts(RecordRead& read, const Unit& unit) const {
  const Bytes offset = unit.start - format_.block_size * read.extent.first;
  for (std::uint32_t m = 0; m < unit_matrices_; ++m)
    read.parts.push_back({unit.neuron, unit.matrix + m, offset + format_.row * m});
}

std::vector<RecordRead> RecordDirectory::reads(LayerId layer, std::span<const std::uint32_t> neurons,
                                               Bytes chunk) const {
  if (chunk < smallest_chunk())
    throw InternalError(
        fmt::format("requests of {} bytes cannot hold a record, which needs {}", chunk.value, smallest_chunk().value));
  if (!neurons.empty()) address(layer, neurons.back(), 0);  // checks the range
  const std::uint64_t block = format_.block_size.value, most = chunk.value / block;
  std::vector<RecordRead> reads;
  for (std::uint32_t region = 0; region < regions_; ++region) {
    for (const std::uint32_t neuron : neurons) {
      const Unit wanted = unit(layer, region, neuron);
      const std::uint64_t first = wanted.start.value / block;
      const std::uint64_t end = ceil_div(wanted.start.value + unit_.value, block);
      const bool joins =
          !reads.empty() && first <= reads.back().extent.end() && end - reads.back().extent.first <= most;
      if (joins)
        reads.back().extent.blocks = std::max(reads.back().extent.end(), end) - reads.back().extent.first;
      else
        reads.push_back({.extent = {first, end - first}});
      add_parts(reads.back(), wanted);
    }
  }
  return reads;
}

}  // namespace csdsim::host
