// Blocks whose pages are to move although they are no garbage: read often, old, or worn too little.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "ftl/kv/kv_flash.h"

namespace csdsim::ftl {

class ReclaimQueue {
 public:
  enum class Reason : std::uint8_t { reads, age, wear };
  struct Chosen {
    BlockId block;
    Reason reason;
  };

  explicit ReclaimQueue(KvFlash& flash) : flash_(flash) {}

  /// The block has been read `reads` times since its erase (KvFtlConfig::read_reclaim).
  void note_reads(BlockId block, std::uint32_t reads) {
    if (flash_.config.read_reclaim > 0 && reads == flash_.config.read_reclaim) choose(block, Reason::reads);
  }
  /// Call it for each page that is taken. The age of a block counts from its first page (refresh_age).
  void note_taken(PhysicalPageAddress ppa);
  /// Sets the current time, and chooses the blocks that have become too old.
  void pass(SimTime now);
  /// Static wear levelling (wear_spread). Looks at the planes whose largest erase count has grown since the last call.
  /// If it is too far above that of the namespace's least worn block, this block is chosen.
  void choose_worn_blocks();

  bool empty() const { return chosen_.empty(); }
  /// Empties the queue.
  std::vector<Chosen> take() { return std::exchange(chosen_, {}); }
  /// A block that was taken has to wait.
  void put_back(Chosen chosen) { chosen_.push_back(chosen); }
  /// Counts a block whose pages have moved.
  void count(Reason reason) { ++*counters_[static_cast<std::size_t>(reason)].blocks; }
  /// The counter of pages that move for this reason.
  std::uint64_t& moved(Reason reason) { return *counters_[static_cast<std::size_t>(reason)].pages; }
  /// Call it when the block is erased.
  void forget(BlockId block);

 private:
  /// A block whose first page was written at `at`, unless it has been erased since.
  struct WrittenBlock {
    BlockId block;
    std::uint32_t erases;
    SimTime at;
  };
  void choose(BlockId block, Reason reason);

  KvFlash& flash_;
  struct Counters {
    std::uint64_t* blocks;
    std::uint64_t* pages;
  };
  std::array<Counters, 3> counters_{{{&flash_.stats.reclaimed_blocks, &flash_.stats.reclaim_pages_moved},
                                     {&flash_.stats.refreshed_blocks, &flash_.stats.refresh_pages_moved},
                                     {&flash_.stats.levelled_blocks, &flash_.stats.wear_pages_moved}}};  ///< by reason
  std::vector<Chosen> chosen_;
  std::deque<WrittenBlock> written_;        ///< oldest first, with refresh_age
  std::vector<std::uint32_t> most_erases_;  ///< by plane, when its wear was last looked at
  SimTime now_{};
};

}  // namespace csdsim::ftl
