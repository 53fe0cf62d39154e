#include "ftl/policies/sequence_block.h"

#include <algorithm>

namespace csdsim::ftl {

const SequenceBlockPolicy::Territory& SequenceBlockPolicy::territory(const KvSequenceInfo& sequence) {
  const auto [at, is_new] = territories_.try_emplace(sequence.id);
  Territory& own = at->second;
  if (!is_new) return own;
  if (unused_.empty()) {
    own.point = next_;
    next_ = AppendPoint{next_.value + 1};
  } else {
    own.point = unused_.back();
    unused_.pop_back();
  }
  const std::uint64_t tiles = (sequence.shape.kv_heads + sequence.layout.page_heads - 1) / sequence.layout.page_heads;
  const std::uint64_t pages = sequence.layout.pages(sequence.shape.max_tokens).total() * tiles * sequence.shape.layers;
  const std::uint64_t of_row = std::uint64_t{geometry_.channels} * geometry_.pages_per_block;
  own.planes = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((pages + of_row - 1) / of_row, 1, geometry_.planes_per_channel()));
  own.first = std::uint64_t{sequence.id.value} * own.planes;
  return own;
}

PhysicalPageAddress SequenceBlockPolicy::place(const KvPageId& page, const KvSequenceInfo& sequence,
                                               PageAllocator& pages) {
  const Territory& own = territory(sequence);
  StripeSlot slot = head_stripe(geometry_, page, sequence);
  slot.row = (own.first + slot.row % own.planes) % geometry_.planes_per_channel();
  return pages.take(plane_of(geometry_, slot), own.point);
}

PhysicalPageAddress SequenceBlockPolicy::move(const KvPageId&, const KvSequenceInfo& sequence, PhysicalPageAddress from,
                                              PageAllocator& pages) {
  return pages.take(geometry_.plane_of(from), territory(sequence).point);
}

void SequenceBlockPolicy::sequence_freed(const KvSequenceInfo& sequence, PageAllocator& pages) {
  const auto at = territories_.find(sequence.id);
  if (at == territories_.end()) return;
  pages.close(at->second.point);
  unused_.push_back(at->second.point);
  territories_.erase(at);
}

}  // namespace csdsim::ftl
