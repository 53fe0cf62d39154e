// Word lines in DRAM whose programs have not completed: their readers, and the pages that they replace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "base/address.h"
#include "base/callback.h"

namespace csdsim::csd_model {

/// Programs of word lines, by the number of the plan that begins each. A word line is programmed again after an erase,
/// so that its programs complete in this order.
class PendingPrograms {
 public:
  using Done = Callback<void()>;

  bool empty() const { return lines_.empty(); }
  bool contains(std::uint64_t line) const { return lines_.contains(line); }
  /// Whether a program of the word line is still to come that an earlier plan than `plan` begins.
  bool contains(std::uint64_t line, std::uint64_t plan) const {
    const auto programs = lines_.find(line);
    return programs != lines_.end() && programs->second.next < plan;
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
  void forget() {
    lines_.clear();
    lines_of_.clear();
    awaited_.clear();
  }

 private:
  static constexpr BlockId kNone{std::numeric_limits<std::uint32_t>::max()};
  struct Programs {
    std::uint64_t next = 0;
    /// Blocks with older versions of what they program. Most lines replace pages of one block, which takes no memory.
    BlockId replaces = kNone;
    std::vector<BlockId> replaces_too;
    std::vector<std::uint64_t> later;

    bool replace(BlockId block) const {
      return replaces == block || std::ranges::find(replaces_too, block) != replaces_too.end();
    }
  };
  struct Awaiting {
    std::uint64_t plan = 0;
    Done done;
  };

  /// The word line replaces no page of the block any more.
  void drop(BlockId block, std::uint64_t line);

  std::unordered_map<std::uint64_t, Programs> lines_;
  /// Lines that replace pages of a block. A block without any keeps its entry, so that a page costs no allocation.
  std::unordered_map<BlockId, std::vector<std::uint64_t>> lines_of_;
  std::unordered_map<std::uint64_t, std::vector<Awaiting>> awaited_;
};

}  // namespace csdsim::csd_model
