// The preallocated matrix of the neurons that are in memory (LLM in a flash, section 3.3).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/lru_list.h"

namespace csdsim::host {

/// For one layer: which neuron each row of the matrix holds. Rows [0, used()) are in use, in no particular order. The
/// matrix itself belongs to the caller, who copies the rows that an update names.
class NeuronMemory {
 public:
  struct Move {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
  };
  /// A new neuron and its row.
  struct Placed {
    std::uint32_t neuron = 0;
    std::uint32_t row = 0;
  };
  /// What an update does to the rows: first the moves, in order, then the new rows.
  struct Update {
    std::vector<Move> moves;
    std::vector<Placed> placed;
    std::vector<std::uint32_t> evicted;  ///< neurons that were dropped for want of room, the oldest use first
  };

  /// Room for `rows` of the layer's `neurons`. Throws UserError for no row.
  NeuronMemory(std::uint32_t neurons, std::uint32_t rows);

  /// A token (or the tokens of a step): `drop` leave, then the neurons of `active` that are not in memory enter. All of
  /// `active` are now the latest used. If there is no room, the neurons whose last use is oldest are evicted. Throws
  /// UserError, and changes nothing, if `active` alone needs more rows than there are. InternalError if a dropped
  /// neuron is active. Neurons of `drop` that are not in memory are ignored: they were evicted. The result is valid
  /// until the next call. The cost is proportional to the sizes of the lists.
  const Update& update(std::span<const std::uint32_t> active, std::span<const std::uint32_t> drop);

  bool contains(std::uint32_t neuron) const { return row_of_[neuron] != kNone; }
  /// Row of a neuron that is in memory.
  std::uint32_t row_of(std::uint32_t neuron) const;
  std::uint32_t neuron_at(std::uint32_t row) const;
  std::uint32_t used() const { return used_; }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(neuron_at_.size()); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  void check(std::span<const std::uint32_t> active, std::span<const std::uint32_t> drop) const;
  /// Frees the rows, from the highest to the lowest: the last used row moves into the hole.
  void free_rows(std::vector<std::uint32_t>& rows);
  void forget(std::uint32_t neuron);
  /// The neuron becomes the latest used.
  void touch(std::uint32_t neuron);
  /// Evicts the oldest until `count` more fit.
  void make_room(std::size_t count);

  std::vector<std::uint32_t> neuron_at_;  ///< [row], the paper's `pointer`
  std::vector<std::uint32_t> row_of_;     ///< [neuron], its inverse
  std::uint32_t used_ = 0;
  LruLinks uses_;   ///< [neuron]
  LruList by_use_;  ///< neurons in memory
  std::vector<std::uint32_t> freed_;
  Update update_;
};

}  // namespace csdsim::host
