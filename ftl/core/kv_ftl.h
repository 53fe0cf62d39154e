// The KV namespace: sequences of keys and values, in token pages and embedding pages, with their tails in controller
// DRAM.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/fp16.h"
#include "base/page_op.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/dram_budget.h"
#include "ftl/core/kv_layout.h"
#include "ftl/core/kv_map.h"
#include "ftl/core/kv_placement.h"
#include "ftl/core/kv_types.h"
#include "ftl/core/media_faults.h"
#include "ftl/core/sparse_array.h"

namespace csdsim::ftl {

struct KvFtlConfig {
  TailPolicy tail = TailPolicy::token_index;
  std::uint32_t embedding_group = 0;  ///< m; 0: chosen from max_tokens, see KvLayout::make
  /// What carried reads of flash pages compare. The logical key catches every mapping error and costs nothing; the CRC
  /// also catches corrupt bytes, at about a nanosecond for two bytes.
  PageCheck check = PageCheck::key;
};

struct KvFtlStats {
  std::uint64_t lookups = 0;  ///< map entries looked up by the plan_ functions
  std::uint64_t token_pages_programmed = 0;
  std::uint64_t embedding_pages_programmed = 0;
  std::uint64_t read_back_pages = 0;  ///< K token pages read to be transposed
  std::uint64_t misplaced_pages = 0;  ///< pages that did not go where the placement wanted them
  std::uint64_t erases = 0;
  std::uint64_t gc_pages_moved = 0;  ///< page reads, and programs, of garbage collection
  std::uint64_t gc_blocks = 0;       ///< blocks that it emptied
  std::uint64_t program_failures = 0;
  std::uint64_t erase_failures = 0;
  std::uint64_t read_retries = 0;
  std::uint64_t uncorrectable_reads = 0;
};

/// InstInfer's KV mapping (reference/algorithms.md 3.2 to 3.5). K is kept twice: in token pages of n tokens and, once a
/// window of T tokens is complete, in embedding pages of m components; V in token pages only.
///
/// State changes at once; timing follows from the page operations that are returned. A page whose program has not
/// completed is readable in DRAM: planning a read of it costs no flash operation. Everything that holds a sequence's
/// pages in use (a flush, an attend that is running) pins it; a freed sequence gives its pages back when the last pin
/// goes.
///
/// A block whose pages have all been freed is erased. Where appends need more room, blocks that are partly free are
/// collected: their valid pages move, and they are erased when nobody reads the old pages any more, that is once each
/// sequence that had one there was without a pin. A block's worth of pages is kept back for the moves.
///
/// A page whose program fails is programmed again elsewhere; its block is retired, and emptied by a later append.
///
/// Each (layer, head) of a sequence has its own token count, so heads and layers may be appended in any order.
/// Functions that take a KvKey throw InternalError for one that does not exist: ask check() first.
class KvFtl {
 public:
  /// All references must outlive the FTL. `dram` may be shared with other users of controller DRAM. `faults`, if given,
  /// must outlive the FTL; null: nothing fails.
  KvFtl(const KvFtlConfig& config, BlockManager& blocks, BackingStore& store, DramBudget& dram,
        std::unique_ptr<KvPlacement> placement, MediaFaults* faults = nullptr);
  ~KvFtl();
  KvFtl(const KvFtl&) = delete;
  KvFtl& operator=(const KvFtl&) = delete;

  /// ok, bad_sequence (in use), busy (freed, but still pinned), bad_shape.
  KvStatus create_sequence(SequenceId id, const KvShape& shape);

  /// The sequence is gone at once for every other call; its pages follow with its last pin.
  FreeResult free_sequence(SequenceId id);

  /// Appends tokens [first, first + count) to `heads`. `keys` and `values` are [heads][count][d], empty in timing mode.
  /// Unless the status is ok nothing has changed that can be seen; `jobs` may hold moves that make room.
  AppendResult append(SequenceId id, LayerId layer, TokenIndex first, std::uint32_t count, HeadRange heads,
                      std::span<const Half> keys = {}, std::span<const Half> values = {});

  /// The programs of a job have completed. Returns erases that this has made possible. Throws InternalError for an
  /// unknown job.
  std::vector<PageOp> flush_done(FlushJobId id);

  /// An erase returned by free_sequence, flush_done or unpin has completed.
  void erase_done(PhysicalPageAddress ppa);

  /// Keeps a sequence's pages from being given back while operations on them are in flight. ok or bad_sequence.
  KvStatus pin(SequenceId id);
  std::vector<PageOp> unpin(SequenceId id);

  /// ok, bad_sequence, bad_layer, bad_head.
  KvStatus check(const KvKey& key) const;
  const KvShape& shape(SequenceId id) const;
  const KvLayout& layout(SequenceId id) const;
  TailPolicy tail_policy() const { return config_.tail; }

  std::uint32_t tokens(const KvKey& key) const;
  /// Tokens in full groups: they have token pages, in flash or on their way there.
  std::uint32_t flushed_tokens(const KvKey& key) const;
  /// S_e: tokens [0, S_e) are readable in embedding pages. The others are scored from token pages (`token_index`) or
  /// from DRAM (`dram`).
  std::uint32_t transposed_tokens(const KvKey& key) const;

  /// Emits a read (class attend) for every group that is in flash; none for those still in DRAM, the unfinished group
  /// included.
  void plan_token_groups(const KvKey& key, KvKind kind, std::span<const std::uint32_t> groups,
                         std::vector<PageOp>& out);
  /// The same for embedding groups, over all windows of [0, S_e), window by window.
  void plan_embedding_groups(const KvKey& key, std::span<const std::uint32_t> groups, std::vector<PageOp>& out);

  /// Data, carried mode only. Pages come from the backing store through its verifying read. Pointers hold until the
  /// next append to this head or until the sequence is released. Rows [slot][d] of a token group; the unfinished group
  /// has tokens() % n of them.
  const Half* token_rows(const KvKey& key, KvKind kind, std::uint32_t group) const;
  /// One row of d.
  const Half* token_row(const KvKey& key, KvKind kind, TokenIndex token) const;
  /// [m][T]: component ge * m + i of tokens window * T + t at [i][t]. `window` must lie below S_e.
  const Half* embedding_page(const KvKey& key, std::uint32_t ge, std::uint32_t window) const;
  /// Running mean of V over all tokens, fp32, updated in token order: mean += (v - mean) / S. Zero before the first
  /// token.
  std::span<const float> value_mean(const KvKey& key) const;

  /// Every live page in (sequence, layer, head) order, K, V by group, then embedding by window.
  void visit_pages(const std::function<void(const KvPageId&, PhysicalPageAddress)>& visit) const;
  /// Reads every live page with full checks; returns the number of mismatches. Carried mode only.
  std::uint64_t verify() const;

  const KvFtlStats& stats() const { return stats_; }
  const DramBudget& dram() const { return dram_; }
  std::size_t pending_flushes() const { return pending_.size(); }
  /// Blocks that were emptied and wait for their last readers.
  std::size_t draining_blocks() const { return draining_.size(); }

  /// Fault injection: exchanges the map entries of two pages. Throws UserError if one is not mapped.
  void swap_mapping(const KvPageId& a, const KvPageId& b);

 private:
  struct Head;
  struct Layer;
  struct Sequence;
  struct Append;
  struct PendingFlush {
    KvKey key;
    bool embedding = false;
    std::uint32_t first = 0;  ///< token group, or window
    std::uint32_t count = 0;  ///< token groups, or 1
  };
  /// Whose map entry points at a page: a head's slot, and the place in one of its two maps.
  struct PageOwner {
    std::uint32_t slot = 0;
    std::uint32_t position = 0;  ///< the uppermost bit: in the embedding map
  };
  struct PendingMove {
    std::vector<PageOwner> pages;
    std::vector<SequenceId> sequences;  ///< pinned by it
  };
  /// An emptied block, and the sequences that may still have reads of it in flight.
  struct DrainingBlock {
    BlockId block;
    std::vector<SequenceId> readers;
  };
  static constexpr std::uint32_t kEmbedding = std::uint32_t{1} << 31;

  const Sequence* find(SequenceId id) const;
  Sequence* find(SequenceId id);
  const Sequence& sequence(SequenceId id) const;
  const Head& head(const KvKey& key) const;
  KvMapEntry& entry(const KvPageId& page);

  KvStatus validate(const Append& a) const;
  KvStatus book(const Append& a);
  void append_head(const Append& a, KvHead h, std::vector<FlushJob>& jobs);
  void update_value_mean(const Append& a, KvHead h, Head& head);
  std::uint32_t buffer_rows(const Append& a, KvHead h, Head& head, std::uint32_t token);
  void flush_groups(const Append& a, const KvKey& key, Head& head, std::vector<FlushJob>& jobs);
  void fill_component_tail(const Append& a, KvHead h, Head& head, std::uint32_t window);
  void transpose_window(const KvLayout& layout, const KvKey& key, std::uint32_t window);
  FlushJob flush_window(Sequence& s, const KvKey& key, Head& head, std::uint32_t window);
  static void advance_readable_windows(const KvLayout& layout, Head& head);

  /// The page that takes the program, if there is one; operations, failed ones included, are appended to `programs`.
  std::optional<PhysicalPageAddress> allocate(PlaneId wanted, Stream stream, OpClass op_class,
                                              std::vector<PageOp>& programs);
  PhysicalPageAddress allocate_for(const KvPageId& page, const Sequence& s, PageOwner owner, FlushJob& job);
  std::optional<PhysicalPageAddress> next_page(PlaneId wanted, Stream stream);
  FlushJobId begin_flush(Sequence& s, const PendingFlush& flush);

  // kv_gc.cpp
  std::uint64_t appendable_pages() const;
  bool room_may_come(std::uint64_t pages) const;
  void make_room(std::uint64_t pages, AppendResult& result);
  std::optional<BlockId> most_garbage();
  bool empty_block(BlockId block, AppendResult& result);
  bool all_in_flash(BlockId block);
  void empty_failed_blocks(AppendResult& result);
  std::vector<PageOp> move_done(const PendingMove& move);
  void readers_left(SequenceId id, std::vector<PageOp>& erases);
  PageOp begin_erase(BlockId block);
  KvMapEntry& entry(PageOwner owner);
  KvPageId page_id(PageOwner owner) const;
  std::uint32_t take_slot(const KvKey& key);
  std::vector<PageOp> release(SequenceId id);
  std::span<const std::byte> read(const KvPageId& page, const KvLayout& layout, PhysicalPageAddress ppa) const;
  PageOp op(PhysicalPageAddress ppa, PageOpKind kind, OpClass op_class) const;
  PageOp read_op(PhysicalPageAddress ppa, OpClass op_class);

  KvFtlConfig config_;
  BlockManager& blocks_;
  BackingStore& store_;
  DramBudget& dram_;
  std::unique_ptr<KvPlacement> placement_;
  MediaFaults* faults_;
  FlashGeometry geometry_;
  std::map<SequenceId, Sequence> sequences_;
  std::unordered_map<std::uint64_t, PendingFlush> pending_;
  std::unordered_map<std::uint64_t, PendingMove> moves_;
  std::vector<DrainingBlock> draining_;
  std::vector<BlockId> failed_;    ///< retired blocks that may hold valid pages
  SparseArray<PageOwner> owners_;  ///< by physical page; says something for valid pages only
  std::vector<KvKey> slots_;       ///< the heads that have pages
  std::vector<std::uint32_t> free_slots_;
  std::uint64_t next_job_ = 0;
  std::size_t closing_sequences_ = 0;
  Bytes closing_dram_;              ///< what closing sequences hold beside their pending flushes
  std::vector<Half> window_image_;  ///< scratch, [d][T]
  KvFtlStats stats_;
};

}  // namespace csdsim::ftl
