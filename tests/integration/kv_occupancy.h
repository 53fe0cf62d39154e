// Write amplification of sequences that come, grow and go, from the occupancy of blocks alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace csdsim::test {

/// At `time` a sequence writes `pages`, or ends where there are none.
struct SequenceEvent {
  double time = 0;
  std::uint32_t sequence = 0;
  std::uint32_t pages = 0;
};

/// Pages of running sequences fill the open block of a plane, the planes in turn; where a plane has no room, that of
/// the next one of its channel, then of the other channels, and then a block that is open for pages that move. In a
/// full namespace that is half of all pages, and which blocks mix the pages of many sequences decides what has to move.
/// A full block whose sequences have all ended is free again. When a write would leave less room than a block has
/// pages, the full block with the fewest pages of running sequences is emptied into another open block of its plane.
/// Nothing takes time.
class KvOccupancy {
 public:
  KvOccupancy(std::uint32_t channels, std::uint32_t planes_per_channel, std::uint32_t blocks, std::uint32_t pages)
      : planes_(channels * planes_per_channel),
        of_channel_(planes_per_channel),
        pages_(pages),
        free_(planes_, blocks),
        room_(std::uint64_t{planes_} * blocks * pages) {}

  /// Pages programmed over pages written.
  double amplification(std::vector<SequenceEvent> events) {
    std::ranges::stable_sort(events, {}, &SequenceEvent::time);
    std::uint64_t written = 0;
    for (const SequenceEvent& event : events) {
      written += event.pages;
      while (room_ < pages_ + event.pages && collect()) {
      }
      for (std::uint32_t i = 0; i < event.pages; ++i) put(event.sequence, next_++ % planes_, 0);
      if (event.pages == 0) end(event.sequence);
    }
    return 1 + static_cast<double>(moved_) / static_cast<double>(written);
  }

 private:
  struct Block {
    std::uint32_t plane = 0, written = 0, valid = 0;
    std::map<std::uint32_t, std::uint32_t> of;  ///< pages by sequence
  };

  void put(std::uint32_t sequence, std::uint32_t wanted, std::uint32_t stream) {
    const std::uint32_t first = wanted / of_channel_ * of_channel_;
    std::uint32_t plane = wanted;
    for (std::uint32_t i = 0; i < 2 * planes_; ++i) {
      if (i == planes_) stream = 1 - stream;
      plane = (first + i / of_channel_ * of_channel_ + (wanted + i) % of_channel_) % planes_;
      if (open_.contains({plane, stream}) || free_[plane] > 0) break;
    }
    auto [at, fresh] = open_.try_emplace({plane, stream}, blocks_.size());
    if (fresh) {
      --free_[plane];
      blocks_.emplace_back().plane = plane;
    }
    const std::size_t block = at->second;
    ++blocks_[block].of[sequence];
    ++blocks_[block].valid;
    --room_;
    if (++blocks_[block].written == pages_) open_.erase(at);
  }
  void end(std::uint32_t sequence) {
    for (Block& block : blocks_) {
      const auto found = block.of.find(sequence);
      if (found == block.of.end()) continue;
      block.valid -= found->second;
      block.of.erase(found);
      if (block.valid == 0 && block.written == pages_) erase(block);
    }
  }
  void erase(Block& block) {
    ++free_[block.plane];
    room_ += pages_;
    block.written = 0;  // not looked at any more
  }
  bool collect() {
    Block* victim = nullptr;
    for (Block& block : blocks_)
      if (block.written == pages_ && block.valid < pages_ && (victim == nullptr || block.valid < victim->valid))
        victim = &block;
    if (victim == nullptr) return false;
    const Block emptied = *victim;
    victim->of.clear();
    victim->valid = 0;
    erase(*victim);
    room_ -= pages_;  // until the moves are done
    --free_[emptied.plane];
    for (const auto& [sequence, count] : emptied.of)
      for (std::uint32_t i = 0; i < count; ++i) put(sequence, emptied.plane, 1);
    moved_ += emptied.valid;
    room_ += pages_;
    ++free_[emptied.plane];
    return true;
  }

  std::uint32_t planes_, of_channel_, pages_, next_ = 0;
  std::vector<std::uint32_t> free_;  ///< blocks, by plane
  std::uint64_t room_, moved_ = 0;
  std::vector<Block> blocks_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> open_;  ///< by plane and stream
};

}  // namespace csdsim::test
