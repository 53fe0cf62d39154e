// The layout of a feed-forward network's weights in a drive's block namespace: one record per neuron.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "host_runtime/core/plan/extent.h"

namespace csdsim::host {

/// The order of the rows of a layer. A neuron has a row of the up projection and a column of the down projection, in
/// gated networks also a row of the gate.
enum class RecordLayout : std::uint8_t {
  rows,    ///< matrix after matrix, each with the rows of all neurons: a neuron takes one read per matrix
  bundled  ///< the rows of a neuron side by side: one read (LLM in a flash, section 3.2)
};

/// Sizes of the records. All layers have the same.
struct RecordFormat {
  std::uint32_t layers = 0;
  std::uint32_t neurons = 0;   ///< number of neurons in a layer
  std::uint32_t matrices = 2;  ///< rows per neuron: up and down, or up, gate and down
  Bytes row;                   ///< bytes of a row of one matrix: the model's width times the size of an element
  RecordLayout layout = RecordLayout::bundled;
  /// Every record (with `rows`, every row) starts at a block. Otherwise they follow one another without gaps, and a
  /// read also fetches what else is in its first and its last block.
  bool aligned = true;
  Bytes block_size;               ///< size of a logical block
  std::uint64_t first_block = 0;  ///< where the records start in the namespace

  Bytes neuron() const { return row * matrices; }
};

/// A row in the data of a read.
struct RecordPart {
  std::uint32_t neuron = 0;
  std::uint32_t matrix = 0;  ///< 0 up, then the gate if there is one, then down
  Bytes offset;              ///< offset of the row in the data of the read
};

/// One request: an extent, and the wanted rows in it.
struct RecordRead {
  Extent extent;
  std::vector<RecordPart> parts = {};
};

/// Layer follows layer; each starts at a block. With `rows`, each matrix of a layer starts at a block.
class RecordDirectory {
 public:
  /// Throws InternalError for a size of zero.
  explicit RecordDirectory(const RecordFormat& format);

  const RecordFormat& format() const { return format_; }
  /// Blocks of all layers.
  std::uint64_t blocks() const { return layer_blocks_ * format_.layers; }
  /// All records of a layer.
  Extent layer(LayerId layer) const { return {format_.first_block + layer.value * layer_blocks_, layer_blocks_}; }
  /// First byte of a row, from the start of the namespace.
  Bytes address(LayerId layer, std::uint32_t neuron, std::uint32_t matrix) const;
  /// Bytes of a request that can always hold one record (with `rows`, one row): the smallest chunk.
  Bytes smallest_chunk() const { return format_.block_size * unit_blocks_; }

  /// The requests that fetch the neurons, in ascending order of their addresses. `neurons` ascend without repetition.
  /// Records in blocks that touch or overlap are fetched by one request of at most `chunk` bytes. Throws InternalError
  /// if `chunk` is below smallest_chunk().
  std::vector<RecordRead> reads(LayerId layer, std::span<const std::uint32_t> neurons, Bytes chunk) const;

 private:
  /// The smallest read: a record, or with the layout `rows` one row of it.
  struct Unit {
    Bytes start;  ///< from the start of the namespace
    std::uint32_t neuron = 0;
    std::uint32_t matrix = 0;  ///< matrix that its first row belongs to
  };
  Unit unit(LayerId layer, std::uint32_t region, std::uint32_t neuron) const;
  void add_parts(RecordRead& read, const Unit& unit) const;

  RecordFormat format_;
  Bytes unit_;    ///< size of a record or row
  Bytes stride_;  ///< from one to the next
  std::uint32_t unit_matrices_ = 1;
  std::uint32_t regions_ = 1;  ///< regions of a layer: matrices with `rows`, else 1
  std::uint64_t region_blocks_ = 0;
  std::uint64_t layer_blocks_ = 0;
  std::uint64_t unit_blocks_ = 0;  ///< most blocks that a record or row touches
};

}  // namespace csdsim::host
