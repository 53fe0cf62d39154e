// Sequences are created, forked, pinned and freed here, and their pages and DRAM given back.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ftl/kv/block_eraser.h"
#include "ftl/kv/kv_placer.h"
#include "ftl/kv/sequence_table.h"

namespace csdsim::ftl {

class KvSequences {
 public:
  KvSequences(KvFlash& flash, KvMappingPolicy& policy, SequenceTable& table, PageOwners& owners, ParkedPages& parked,
              KvLosses& losses, KvPages& pages, KvPlacer& placer, BlockEraser& eraser)
      : flash_(flash),
        policy_(policy),
        table_(table),
        owners_(owners),
        parked_(parked),
        losses_(losses),
        pages_(pages),
        placer_(placer),
        eraser_(eraser) {}

  /// As in KvFtl.
  KvStatus create(SequenceId id, const KvShape& shape);
  KvStatus fork(SequenceId parent, SequenceId child);
  FreeResult free(SequenceId id);
  KvStatus pin(SequenceId id);
  std::vector<PageOp> unpin(SequenceId id);

  /// A segment of `key`'s sequence that continues those of `before`, if given.
  std::shared_ptr<MapSegment> new_segment(const HeadKey& key, std::uint32_t number, const KvTile* before,
                                          const KvLayout& layout);
  /// Gives back pages that a fuller version has replaced. Reads of them must be over.
  void drop_superseded(KvSequence& s, std::vector<PageOp>& erases);
  /// The same for sequences without a pin, of which no unpin() would give the pages back.
  void drop_superseded_of_unpinned(std::vector<PageOp>& erases);
  /// Number of sequences that were freed and are still pinned.
  std::size_t closing() const { return closing_; }
  /// Controller DRAM that freed sequences and pending flushes will give back.
  Bytes draining_dram() const;

 private:
  void check_layout(const KvSequence& s) const;
  std::vector<PageOp> release(SequenceId id);
  void release_segment(MapSegment& segment, SequenceId user, std::vector<PageOp>& erases);
  void drop_pages(std::span<const KvMapEntry> pages, std::vector<PageOp>& erases);
  void fork_layer(KvSequence& parent, KvSequence& child, std::uint32_t layer);

  KvFlash& flash_;
  KvMappingPolicy& policy_;
  SequenceTable& table_;
  PageOwners& owners_;
  ParkedPages& parked_;
  KvLosses& losses_;
  KvPages& pages_;
  KvPlacer& placer_;
  BlockEraser& eraser_;
  std::size_t closing_ = 0;
  Bytes closing_dram_;  ///< what closing sequences hold beside their pending flushes
};

}  // namespace csdsim::ftl
