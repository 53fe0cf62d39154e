// Word lines in DRAM whose programs have not completed: their readers, and the pages that they replace.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "base/address.h"
#include "base/callback.h"
#include "base/slot_index.h"
#include "base/slot_pool.h"

namespace csdsim::csd_model {

/// Programs of word lines, by the number of the plan that begins each. A word line is programmed again after an erase,
/// so that its programs complete in this order.
class PendingPrograms {
 public:
  using Done = Callback<void()>;

  bool empty() const { return lines_.empty(); }
  bool contains(std::uint64_t line) const { return lines_.find(line) != SlotIndex::kNone; }
  /// Whether a program of the word line is still to come that an earlier plan than `plan` begins.
  bool contains(std::uint64_t line, std::uint64_t plan) const {
    const std::uint32_t slot = lines_.find(line);
    return slot != SlotIndex::kNone && programs_[slot].next < plan;
  }

  /// `plan` begins a program of the word line.
  void expect(std::uint64_t line, std::uint64_t plan);
  /// What is programmed to the word line replaces a page of the block. Nothing if no program of the line is expected.
  void note_replaced(std::uint64_t line, BlockId block);
  /// The word lines that earlier plans than `plan` program, with newer versions of pages of the block; ascending.
  std::vector<std::uint64_t> replacing(BlockId block, std::uint64_t plan) const;

  /// Calls back when no program of `lines` is pending that an earlier plan than `plan` begins. One is pending of each.
  void await(const std::vector<std::uint64_t>& lines, std::uint64_t plan, Done done);
  /// The next program of the word line has completed. Returns who has waited for it, to be called.
  std::vector<Done> complete(std::uint64_t line);

  /// The power has failed: nothing is expected, and nobody waits.
  void forget() { *this = {}; }

 private:
  static constexpr std::uint32_t kNone = SlotIndex::kNone;
  struct Programs {
    std::uint64_t next = 0;
    std::uint32_t replaces = kNone;  ///< the first of its slots in replaced_
    std::vector<std::uint64_t> later;
  };
  /// A word line that replaces a page of a block.
  struct Replacing {
    std::uint64_t line = 0;
    std::uint32_t next = kNone;  ///< of the same line
  };
  struct Awaiting {
    std::uint64_t plan = 0;
    Done done;
  };

  static constexpr BlockId kNoBlock{std::numeric_limits<std::uint32_t>::max()};

  SlotIndex lines_;  ///< slots of programs_
  SlotPool<Programs> programs_;
  SlotPool<Replacing> replacing_;
  /// The blocks of replacing_, kNoBlock for free slots. An erase looks through all of them: erases are few, and a list
  /// for each block would cost every program more than that.
  std::vector<BlockId> replaced_;
  std::unordered_map<std::uint64_t, std::vector<Awaiting>> awaited_;
};

}  // namespace csdsim::csd_model
