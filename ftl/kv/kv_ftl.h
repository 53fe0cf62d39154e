// The KV namespace: sequences of keys and values, in token pages and embedding pages, with their tails in controller
// DRAM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/fp16.h"
#include "base/units.h"
#include "contracts/page_op.h"
#include "contracts/read_plan.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/dram_budget.h"
#include "ftl/core/media_faults.h"
#include "ftl/kv/kv_ftl_config.h"
#include "ftl/kv/kv_ftl_stats.h"
#include "ftl/kv/kv_layout.h"
#include "ftl/kv/kv_policy.h"
#include "ftl/kv/kv_types.h"

namespace csdsim::ftl {

struct KvDump;
struct KvParts;
struct RecoveryResult;

/// The KV cache of many sequences under one mapping policy (kv_policy.h). K may be kept twice: in token pages and, once
/// a window of tokens is complete, component-major in embedding pages; V in token pages only (InstInfer;
/// docs/algorithms.md, Layouts to Tail).
///
/// State changes at once; timing follows from the page operations that are returned. A page whose program has not
/// completed is readable in DRAM: planning a read of it costs no flash operation. Everything that holds a sequence's
/// pages in use (a flush, an attend that is running) pins it; a freed sequence gives its pages back when the last pin
/// goes.
///
/// A block whose pages have all been freed is erased. Where appends need more room, blocks that are partly free are
/// collected: their valid pages move, and they are erased when nobody reads the old pages any more, that is once each
/// sequence that had one there was without a pin. As many pages as a block has are reserved for the moves.
///
/// With `read_reclaim`, a block that was read so often is collected by a later append, full as it may be of valid
/// pages. Likewise with `refresh_age` a block whose first page is so old, which is closed if it is not full, and with
/// `wear_spread` a block that was erased too seldom.
///
/// A page whose program fails is programmed again elsewhere; its block is retired, and emptied by a later append.
///
/// A page that cannot be read back is lost: every read of it is reported by take_losses(), also after garbage
/// collection has moved it, and so is every read of an embedding page that was transposed from it. drop() takes its
/// tokens out of attention; they are not read any more.
///
/// A forked sequence shares the pages of its parent (copy on write: what either of them appends is its own). A page
/// goes when the last sequence that shares it has gone.
///
/// After a power loss a new object takes the place of this one: power_loss(), recover(), and
/// docs/adr/0007-power-loss.md.
///
/// Each (layer, head) of a sequence has its own token count, so heads and layers may be appended in any order.
/// Functions that take a HeadKey throw InternalError for one that does not exist: ask check() first.
class KvFtl {
 public:
  /// All references must outlive the FTL. Pages are those of `store`; the blocks may count in units of which a whole
  /// number make a page. `dram` may be shared with other users of controller DRAM. `faults`, if given,
  /// must outlive the FTL; null: nothing fails.
  KvFtl(const KvFtlConfig& config, BlockManager& blocks, BackingStore& store, DramBudget& dram,
        std::unique_ptr<KvMappingPolicy> policy, MediaFaults* faults = nullptr);
  ~KvFtl();
  KvFtl(const KvFtl&) = delete;
  KvFtl& operator=(const KvFtl&) = delete;

  /// ok, bad_sequence (in use), busy (freed, but still pinned), bad_shape.
  KvStatus create_sequence(SequenceId id, const KvShape& shape);

  /// `child` becomes a copy of `parent` as it is now, which costs no flash operation: full groups and windows are
  /// shared, the tails in DRAM are copied. Every head of `parent` must hold the same number of tokens. ok, bad_sequence
  /// (no such parent, or child in use), bad_token, busy, out_of_dram.
  KvStatus fork_sequence(SequenceId parent, SequenceId child);

  /// For every other call the sequence no longer exists; its pages are freed when its last pin goes.
  FreeResult free_sequence(SequenceId id);

  /// Sets the current time, with which the age of pages is computed. `now` does not decrease.
  void pass(SimTime now);

  /// Appends tokens [first, first + count) to `heads`. `keys` and `values`: [heads][count] rows, empty in timing mode.
  /// Unless the status is ok the content has not changed; `jobs` may hold moves that make room.
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
  KvStatus check(const HeadKey& key) const;
  const KvShape& shape(SequenceId id) const;
  const KvLayout& layout(SequenceId id) const;
  TailPolicy tail_policy() const;
  const KvMappingPolicy& policy() const;

  std::uint32_t tokens(const HeadKey& key) const;
  /// Tokens in full groups: they have token pages, whose programs may still be in progress.
  std::uint32_t flushed_tokens(const HeadKey& key) const;
  /// S_e: tokens [0, S_e) are readable in embedding pages. The others are scored from token pages (`token_index`,
  /// `partial_program`) or from DRAM (`dram`).
  std::uint32_t transposed_tokens(const HeadKey& key) const;
  /// Windows that those tokens lie in; the last may be partly filled.
  std::uint32_t transposed_windows(const HeadKey& key) const;

  /// Appends a read (class attend) for every page of the wanted rows that is in flash, and the map entries that the
  /// firmware looks up to find these pages (KvMappingPolicy::lookups). There is none for rows that are still in DRAM,
  /// those of the unfinished group included. Keys come before values. `rows`, if given, says how many rows of each
  /// group are wanted; ReadPlan::wanted has their bytes. Whole pages cross the channel.
  ///
  /// With codewords, `groups` are of KvLayout::fetch_tokens() tokens, several of which may share a page: it is read
  /// once, with the codewords that hold them.
  void plan_token_groups(const HeadKey& key, KvRows which, std::span<const std::uint32_t> groups,
                         std::span<const std::uint32_t> rows, ReadPlan& out);
  /// The same for embedding pages, over all windows of [0, S_e), window by window. `groups` are of
  /// KvLayout::fetch_components() components and ascend: windows of larger groups are read where they hold one of them.
  void plan_embedding_groups(const HeadKey& key, std::span<const std::uint32_t> groups,
                             std::span<const std::uint32_t> rows, ReadPlan& out);

  /// Whether reads may fail.
  bool may_lose() const;
  /// Lost pages among those that the plan_ functions were asked for since the last call, under the sequence that reads
  /// them. Dropped tokens are reported like lost ones: whoever asks for them does not get them.
  std::vector<KvLoss> take_losses();
  bool has_losses() const;
  /// Writes K and V of tokens again that these heads have: all pages of theirs that a read would lose now, of whole
  /// groups and windows among the tokens, are programmed anew from the rows, which are as for append(). Heads that
  /// share pages must come together (bad_head). What it returns is as for append(); no jobs if nothing is lost.
  AppendResult rewrite(SequenceId id, LayerId layer, TokenIndex first, std::uint32_t count, HeadRange heads,
                       std::span<const Half> keys = {}, std::span<const Half> values = {});
  /// Takes the tokens of a lost page out of attention of their heads.
  void drop(const KvLoss& loss);
  /// Spans that ascend and do not touch.
  std::span<const TokenSpan> dropped(const HeadKey& key) const;

  /// Data, carried mode only. Pages come from the backing store through its verifying read. Pointers hold until the
  /// next append to this head or until the sequence is released. Rows [slot] of a token group; the unfinished group
  /// has tokens() % n of them.
  const Half* token_rows(const HeadKey& key, KvKind kind, std::uint32_t group) const;
  /// One row.
  const Half* token_row(const HeadKey& key, KvKind kind, TokenIndex token) const;
  /// [m][T] of KvLayout::window(window): component ge * m + i of the window's token t at [i][t]. `window` must lie
  /// below transposed_windows(); of the last one, tokens from S_e on hold nothing.
  const Half* embedding_page(const HeadKey& key, std::uint32_t ge, std::uint32_t window) const;
  /// Running mean of V over all tokens, fp32, updated in token order: mean += (v - mean) / S. Zero before the first
  /// token.
  std::span<const float> value_mean(const HeadKey& key) const;

  /// Every live page in (sequence, layer, head) order, by sharing segment: token pages by group, then embedding pages
  /// by window. A page that several sequences share is visited once, under the key that it was written under. Parked
  /// pages have no address and are left out.
  void visit_pages(const std::function<void(const KvPageId&, PhysicalPageAddress)>& visit) const;
  /// Pages that a fuller version has replaced and that wait for their last readers.
  std::size_t superseded_pages() const;
  /// Reads every live page with full checks; returns the number of mismatches. Carried mode only.
  std::uint64_t verify() const;

  const KvFtlStats& stats() const;
  const DramBudget& dram() const;
  std::size_t pending_flushes() const;
  /// Blocks that were emptied and wait for their last readers.
  std::size_t draining_blocks() const;

  /// What the drive's capacitors save when power fails now: call it at any time, however many of the operations that
  /// were returned have completed. Freed sequences are not in it. Throws UserError in timing mode, which keeps no
  /// out-of-band metadata to recover from.
  KvDump power_loss() const;

  /// Brings the namespace back from a dump and from what the flash holds. To be called before anything else, on an
  /// object over a new BlockManager and the old BackingStore (BackingStore::lose_power), with the configuration that
  /// the lost one had. Blocks of the block namespace are left alone. Afterwards everything that the appends had
  /// accepted is there, and every function may be called; pages that were in flight are parked until the returned
  /// operations, and appends, have programmed them. Power may fail again at any time. Throws UserError if tail policy
  /// or mapping policy are not those of the dump, or in timing mode; InternalError if the object was used before.
  ///
  /// `restore_others` is called after this namespace has its blocks again, and before it takes a free one. If the drive
  /// has a block namespace, it has to restore the blocks of that namespace.
  RecoveryResult recover(const KvDump& dump, const std::function<void()>& restore_others = {});

  /// The power has failed: forgets all but the counters, as a new object would be, and gives its DRAM back. recover()
  /// follows.
  void forget(std::unique_ptr<KvMappingPolicy> policy);

  /// Pages whose images a recovery holds in DRAM until there is room for them in flash.
  std::size_t parked_pages() const;

  /// Fault injection: exchanges the map entries of two pages. Throws UserError if one is not mapped.
  void swap_mapping(const KvPageId& a, const KvPageId& b);
  /// Fault injection: loses the rows of a head that are in no token page. Throws UserError if there are none. Carried
  /// mode only.
  void forget_tail(const HeadKey& key);

 private:
  std::unique_ptr<KvFtlStats> stats_;  ///< outlives a loss of power
  BlockManager& blocks_;
  std::unique_ptr<KvParts> parts_;
};

}  // namespace csdsim::ftl
