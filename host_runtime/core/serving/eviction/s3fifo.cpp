#include "host_runtime/core/serving/eviction/s3fifo.h"

#include <algorithm>

namespace csdsim::host {

namespace {

constexpr std::uint8_t kMostUses = 3;      // two bits
constexpr std::uint8_t kUsesToMoveOn = 2;  // "freq > 1"

}  // namespace

std::optional<KvBlockSlot> S3FifoEviction::evict(KvBlockId, std::span<const std::uint32_t> holds) {
  auto slot = small_is_full() ? evict_small(holds) : evict_main(holds);
  // The queue whose turn it is has nothing that may leave.
  if (!slot) slot = evict_main(holds);
  if (!slot) slot = evict_small(holds);
  return slot;
}

std::optional<KvBlockSlot> S3FifoEviction::evict_small(std::span<const std::uint32_t> holds) {
  for (;;) {
    const KvBlockSlot slot = small_.oldest_free(links_, holds);
    if (slot == kNoSlot) return std::nullopt;
    small_.remove(links_, slot);
    if (blocks_[slot].uses < kUsesToMoveOn) {
      remember(blocks_[slot].id);
      return slot;
    }
    blocks_[slot].uses = 0;
    blocks_[slot].in_main = true;
    main_.push_newest(links_, slot);
    if (main_.size() * 10 > capacity_ * 9)
      if (const auto from_main = evict_main(holds)) return from_main;
  }
}

std::optional<KvBlockSlot> S3FifoEviction::evict_main(std::span<const std::uint32_t> holds) {
  for (;;) {
    const KvBlockSlot slot = main_.oldest_free(links_, holds);
    if (slot == kNoSlot) return std::nullopt;
    main_.remove(links_, slot);
    if (blocks_[slot].uses == 0) return slot;
    --blocks_[slot].uses;
    main_.push_newest(links_, slot);
  }
}

void S3FifoEviction::remember(KvBlockId id) {
  if (ghosts_.contains(id)) return;
  ghosts_.push_newest(id);
  while (ghosts_.size() * 10 > capacity_ * 9) ghosts_.erase_oldest();
}

void S3FifoEviction::stored(KvBlockSlot slot, KvBlockId id) {
  links_.cover(slot);
  if (slot >= blocks_.size()) blocks_.resize(slot + std::size_t{1});
  blocks_[slot] = {id, 0, ghosts_.erase(id)};
  (blocks_[slot].in_main ? main_ : small_).push_newest(links_, slot);
}

void S3FifoEviction::used(KvBlockSlot slot) {
  blocks_[slot].uses = std::min<std::uint8_t>(static_cast<std::uint8_t>(blocks_[slot].uses + 1), kMostUses);
}

void S3FifoEviction::removed(KvBlockSlot slot) { (blocks_[slot].in_main ? main_ : small_).remove(links_, slot); }

}  // namespace csdsim::host
