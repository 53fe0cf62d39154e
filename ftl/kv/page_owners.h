// From a physical page to the map entry that points at it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ftl/core/sparse_array.h"
#include "ftl/kv/kv_flash.h"
#include "ftl/kv/sequence_table.h"

namespace csdsim::ftl {

/// Whose map entry points at a page: the slot of a segment, and the place in one of its two maps.
struct PageOwner {
  static constexpr std::uint32_t kEmbedding = std::uint32_t{1} << 31;
  std::uint32_t slot = 0;
  std::uint32_t position = 0;  ///< kEmbedding is set: in the embedding map
};

/// A map entry; of the unfinished window it is in, if it is, the tokens that its page holds.
struct FoundEntry {
  KvMapEntry* entry = nullptr;
  std::uint32_t partial_tokens = 0;
};

/// The owner of every valid page, and the map segments that owners name by slot.
class PageOwners {
 public:
  PageOwners(const KvFlash& flash, SequenceTable& table);

  /// Gives a segment, which must not move, a slot.
  void add(MapSegment& segment);
  void remove(const MapSegment& segment);
  MapSegment& segment(PageOwner owner) const { return *slots_[owner.slot]; }

  /// Meaningful for valid pages only.
  PageOwner of(PhysicalPageAddress ppa) const { return owners_.get(ppa.value); }
  void set(PhysicalPageAddress ppa, PageOwner owner) { owners_[ppa.value] = owner; }

  /// The entry that points at `ppa`; none if a newer version of the page has replaced it.
  FoundEntry find(PageOwner owner, PhysicalPageAddress ppa) const;
  KvPageId id_of(PageOwner owner) const;
  /// The page that was written there last; empty if its segment is gone.
  std::optional<KvPageId> holder_of(PhysicalPageAddress ppa) const;

  /// What the tables of all segments take in controller DRAM.
  Bytes table_bytes() const {
    Bytes sum;
    for (const MapSegment* const segment : slots_) sum += segment != nullptr ? segment->table : Bytes{};
    return sum;
  }

  /// KvFtl::visit_pages
  void visit_pages(const std::function<void(const KvPageId&, PhysicalPageAddress)>& visit) const;

 private:
  const FlashGeometry geometry_;
  SequenceTable& table_;
  SparseArray<PageOwner> owners_;   ///< by physical page
  std::vector<MapSegment*> slots_;  ///< the segments that have pages
  std::vector<std::uint32_t> free_slots_;
};

}  // namespace csdsim::ftl
