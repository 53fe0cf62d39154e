// The block namespace: page-level mapping with garbage collection and wear levelling.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <unordered_set>
#include <vector>

#include "base/fixed_divisor.h"
#include "base/page_op.h"
#include "ftl/block/map_cache.h"
#include "ftl/block/page_map.h"
#include "ftl/block/plane_load.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/media_faults.h"
#include "ftl/core/stripe.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::ftl {

/// The tag of a page of the block namespace.
inline OobTag host_tag(LogicalPage page) {
  OobTag tag;
  tag.index = page.value;
  return tag;
}

/// Which plane a host page goes to.
enum class PageAllocation : std::uint8_t {
  dynamic,  ///< the one that can take it first, as far as known; of several, the next in stripe order
  fixed     ///< a function of the logical page: page p on the plane of rank p in stripe order
};

/// How much a write collects that finds few free blocks.
enum class GcPace : std::uint8_t {
  steps,  ///< its share of a victim, behind the write
  blocks  ///< whole victims, before the write
};

struct BlockFtlConfig {
  double over_provisioning = 0.07;   ///< share of the namespace's flash that is not exported, in [0, 1)
  std::uint32_t gc_free_blocks = 2;  ///< writes to a plane with at most so many free blocks collect; at least 1
  StripeOrder stripe_order = kChannelDiePlane;
  PageCheck check = PageCheck::key;
  PageAllocation allocation = PageAllocation::dynamic;
  std::uint32_t background_free_blocks = 0;  ///< planes at or below it want background steps; 0: never
  std::uint32_t gc_step_pages = 8;           ///< pages that a background step moves at most; at least 1
  /// Static wear levelling: the largest allowed difference between the erase counts of a plane's blocks, those of both
  /// namespaces. Above it, the pages of this namespace's least worn block move. 0: no limit.
  std::uint32_t wear_spread = 0;
  SimTime refresh_age{};  ///< age of the oldest page of a block at which its pages move; 0: never
  /// Map entries that controller DRAM holds; the others are in flash, in translation pages. Unset: it holds them all.
  std::optional<std::uint64_t> map_cache_entries = {};
  Bytes codeword{};  ///< what a read moves at least; divides a page. 0: the page
  GcPace gc_pace = GcPace::steps;
  /// Mapping units that one program operation writes: those of a word line. Addresses and the geometry of this class
  /// count mapping units as pages.
  std::uint32_t units_per_program = 1;
  bool pads = false;  ///< the units of a request are programmed with it, and the rest of their word line stays empty
};

/// Bytes of a map entry in flash and in DRAM.
inline constexpr std::uint32_t kMapEntryBytes = 4;

enum class IoStatus : std::uint8_t {
  ok,
  out_of_range,
  out_of_space,
  uncorrectable,  ///< a page could not be corrected that is read, or that a partial write merges with
  read_only       ///< a block failed and no spare block is left
};

/// Page operations that may run side by side.
using Phase = std::vector<PageOp>;

/// The page operations of a request: phase i+1 may start when phase i is done. The state has changed already; requests
/// that are in flight together must reach each plane in the order in which they were planned.
struct IoPlan {
  IoStatus status = IoStatus::ok;
  std::vector<Phase> phases;
  std::size_t behind = 0;  ///< the last so many phases are collection that the request does not wait for

  /// Removes those phases; they must run directly after the others.
  std::vector<Phase> take_behind();
};

/// What a write keeps of the pages that it covers partly, read before the write is planned.
struct KeptPages {
  struct Page {
    LogicalPage page;
    PhysicalPageAddress ppa;  ///< of the content that was read
    bool corrected = true;
  };
  std::vector<Page> pages;
  Phase reads;  ///< of these pages
};

struct BlockFtlStats {
  std::uint64_t host_pages_read = 0;     ///< page reads for host reads
  std::uint64_t unwritten_reads = 0;     ///< logical pages read as zeros, without flash
  std::uint64_t merge_reads = 0;         ///< page reads to complete a partial write
  std::uint64_t host_pages_written = 0;  ///< programs for host writes
  std::uint64_t coalesced_pages = 0;     ///< host writes to pages whose program had not begun: without a program
  std::uint64_t gc_pages_moved = 0;      ///< by garbage collection, each by a read and a program
  std::uint64_t gc_erases = 0;
  std::uint64_t background_steps = 0;     ///< of garbage collection
  std::uint64_t wear_pages_moved = 0;     ///< by static wear levelling, each by a read and a program
  std::uint64_t wear_erases = 0;          ///< of static wear levelling
  std::uint64_t refresh_pages_moved = 0;  ///< because of their age, each by a read and a program
  std::uint64_t refreshed_blocks = 0;     ///< erased because of their age
  std::uint64_t retired_pages_moved = 0;  ///< out of blocks that failed, each by a read and a program
  std::uint64_t program_failures = 0;
  std::uint64_t erase_failures = 0;
  std::uint64_t read_retries = 0;
  std::uint64_t uncorrectable_reads = 0;
  std::uint64_t trimmed_pages = 0;
  std::uint64_t map_hits = 0;  ///< entries of host pages found in the cache; 0 without a cache
  std::uint64_t map_misses = 0;
  std::uint64_t map_pages_read = 0;     ///< translation pages
  std::uint64_t map_pages_written = 0;  ///< translation pages written, except those that were moved

  /// Programs per host program; 1 before the first write. Programs that failed are not counted.
  double write_amplification() const {
    if (host_pages_written == 0) return 1.0;
    const std::uint64_t moved =
        gc_pages_moved + wear_pages_moved + refresh_pages_moved + retired_pages_moved + map_pages_written;
    return static_cast<double>(host_pages_written + moved) / static_cast<double>(host_pages_written);
  }
};

/// Registers all counters with unit and meaning; `stats` must outlive the dump.
void register_statistics(Statistics& statistics, const BlockFtlStats& stats);

/// Offsets and lengths are bytes of the namespace. State changes at once; the returned plan has the operations. `data`
/// and `out` are empty in timing mode and `length` bytes long otherwise.
///
/// A page whose program fails is programmed again elsewhere in its plane; its block is retired: the valid pages move
/// out, and a spare block replaces it. A block whose erase fails is replaced too. Without a spare block the drive is
/// read-only.
///
/// Writes to a plane with few free blocks pay for its collection (GcPace): with `steps`, a victim of v valid pages
/// gives room for as many writes as its other pages, and each of them moves an equal share of the v pages. Only a write
/// that would take the last free block but one waits for the rest of the victim. What is not recorded (age()) collects
/// whole blocks.
///
/// With a cached map, a request first reads the translation pages of the entries that are not cached, and writes back
/// those whose dirty entries are evicted for them. Where garbage collection moves pages whose entries are not cached,
/// the request that collects writes their translation pages.
class BlockFtl {
 public:
  /// Throws UserError if the namespace's share of the flash is too small to collect garbage in, or on a bad config.
  /// `faults`, if given, must outlive the FTL; null: nothing fails.
  BlockFtl(const BlockFtlConfig& config, BlockManager& blocks, BackingStore& store, MediaFaults* faults = nullptr);

  /// Exported capacity: (1 - over_provisioning) of the namespace's flash, and never the blocks that collection needs.
  Bytes capacity() const { return page_size_ * exported_; }

  bool map_is_cached() const { return cache_.has_value(); }

  /// The map operations of a read: none unless the map is cached.
  IoPlan find(Bytes offset, Bytes length);
  /// Appends the page reads that it takes to `ops`, which may run side by side. Where the map is cached, find() of
  /// these bytes comes first.
  IoStatus read(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops);
  /// Both as one plan; without a phase if nothing of it is in flash.
  IoPlan read(Bytes offset, Bytes length, std::span<std::byte> out = {});

  /// A partly covered page is read, merged and written. Within capacity() space cannot run out before blocks are lost.
  /// If a page fails, it keeps its content, and the pages before it are written. Pages of `kept` that have not been
  /// written since are not read again.
  IoPlan write(Bytes offset, Bytes length, std::span<const std::byte> data = {}, const KeptPages* kept = nullptr);

  /// The reads of the pages that such a write covers partly. Callers that have them done first plan the write when its
  /// data is complete, so that no plane waits for a read on another plane. Nothing with a cached map, whose entries
  /// have to be read before.
  KeptPages keep(Bytes offset, Bytes length);

  /// Pages that are covered wholly read as zeros from now on; partly covered ones keep their bytes.
  IoPlan trim(Bytes offset, Bytes length);

  /// From now on, writes to pages whose program has not begun, as `held` says, change them in the write buffer.
  void coalesce(std::function<bool(PhysicalPageAddress)> held) { held_ = std::move(held); }

  /// From now on, PageAllocation::dynamic takes the plane with the least load, which must outlive the FTL. Callers add
  /// the operations of a plan to it when they get the plan, and remove each when it is done.
  void place_by(PlaneLoad& load) { load_ = &load; }
  bool places_dynamically() const { return config_.allocation == PageAllocation::dynamic; }
  const StripeOrder& stripe_order() const { return config_.stripe_order; }

  bool collects_in_background() const { return config_.background_free_blocks > 0; }
  /// The plane has at most background_free_blocks free blocks, and something to collect.
  bool wants_background_step(PlaneId plane) const;
  /// A piece of background garbage collection in `plane`: moves at most gc_step_pages pages of a victim, and erases it
  /// once it is empty. Empty if the plane wants none. A write that finds too few free blocks first finishes the
  /// collection that was begun.
  std::optional<IoPlan> background_step(PlaneId plane);
  /// A piece of static wear levelling in `plane`, which erases of another namespace have worn. Empty if the erase
  /// counts differ by at most the allowed spread.
  std::optional<IoPlan> wear_step(PlaneId plane);

  bool refreshes() const { return config_.refresh_age.ps > 0; }
  /// The current time, with refresh_age: what is written from now on is written now, and blocks become old.
  void pass(SimTime now);
  /// With refresh_age: moves the pages of an old block of `plane` and erases it, after the victim that is being
  /// collected there. Empty if no block of the plane is old, or if there is no room: a later call may find some.
  std::optional<IoPlan> refresh_step(PlaneId plane);

  /// Fills the first `working_set` bytes (rounded up to pages) of an untouched drive, instantly: sequentially along the
  /// stripe order, or with `seed` in random order. Timing mode only (there are no bytes to fill in); throws UserError
  /// otherwise.
  void precondition(Bytes working_set, std::optional<std::uint64_t> seed);

  /// Writes uniformly random pages of what was preconditioned, `overwrites` times as many as there are, with the
  /// garbage collection that this takes but without page operations, and counts none of it in stats(): the drive is
  /// left as after that much use. 3 to 5 reach the steady state of uniformly random writes. Timing mode only.
  void age(double overwrites, std::uint64_t seed);

  PhysicalPageAddress lookup(LogicalPage page) const { return map_.lookup(page); }
  void prefetch(LogicalPage page) const { map_.prefetch(page); }
  bool read_only() const { return blocks_.read_only(); }
  const BlockFtlStats& stats() const { return stats_; }

 private:
  class PlanBuilder;
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  /// A block whose first page was written at a time, when it had been erased so often.
  struct WrittenBlock {
    BlockId block;
    std::uint32_t erases = 0;
    SimTime at;
  };

  bool in_range(Bytes offset, Bytes length) const { return offset <= capacity() && length <= capacity() - offset; }
  std::uint32_t page_bytes() const { return static_cast<std::uint32_t>(page_size_.value); }
  /// Data bytes that a read moves for `count` bytes from `first` on of a page: those of their codewords.
  std::uint32_t read_bytes(std::uint64_t first, std::uint64_t count) const {
    const std::uint64_t size = codeword_.value;
    return static_cast<std::uint32_t>(((first + count - 1) / size - first / size + 1) * size);
  }
  /// The same for what such a write leaves of the page.
  std::uint32_t kept_bytes(std::uint64_t first, std::uint64_t count) const;
  PageOp op(PhysicalPageAddress ppa, PageOpKind kind, OpClass op_class) const {
    return {
        .ppa = ppa, .kind = kind, .op_class = op_class, .channel_bytes = kind == PageOpKind::erase ? 0 : page_bytes()};
  }

  // block_ftl.cpp: the host's side.
  /// The read of a page, with its retries. False: it cannot be corrected.
  bool plan_read(LogicalPage page, PhysicalPageAddress ppa, OpClass op_class, PageOp& read) {
    read = op(ppa, PageOpKind::read, op_class);
    return faults_ == nullptr || draw_errors(page, ppa, read);
  }
  bool draw_errors(LogicalPage page, PhysicalPageAddress ppa, PageOp& read);
  IoStatus write_page(LogicalPage page, std::uint64_t first, std::uint64_t count, std::span<const std::byte> bytes,
                      const KeptPages* kept, PlanBuilder& plan);
  bool merge(LogicalPage page, std::uint64_t first, std::uint64_t count, std::span<const std::byte> data,
             const KeptPages* kept, PlanBuilder& plan);
  bool is_held(PhysicalPageAddress ppa) const { return held_ && ppa.valid() && held_(ppa); }
  bool read_rest(LogicalPage page, PhysicalPageAddress ppa, std::uint64_t first, std::uint64_t count, PageOp& read);
  void change_held_page(LogicalPage page, std::uint64_t first, std::span<const std::byte> data);
  IoStatus read_pages(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops);
  IoStatus plan_page(LogicalPage page, std::uint64_t first, std::uint64_t count, Phase& ops);
  IoStatus access_maps(Bytes offset, Bytes length, bool change, PlanBuilder& plan);
  std::optional<PhysicalPageAddress> place(LogicalPage page, Stream stream, PlanBuilder& plan);
  std::optional<PhysicalPageAddress> place_in(PlaneId plane, Stream stream, PlanBuilder& plan);
  void choose_plane(std::uint32_t& cursor, Stream stream, PlanBuilder& plan);
  void invalidate(PhysicalPageAddress old) {
    if (old.valid()) blocks_.invalidate(old);
  }
  void owe(PlaneId plane, const PlanBuilder& plan);
  void fill_from(PlaneId plane, const PlanBuilder& plan);
  void pad(const PlanBuilder& plan);

  // block_gc.cpp: moving pages. Operations are appended to `phases` unless it is null.
  std::optional<PhysicalPageAddress> program(PlaneId plane, Stream stream, OpClass op_class, Phase* ops);
  bool program_failed(PhysicalPageAddress ppa);
  std::uint32_t& collecting(PlaneId plane) { return collections_[plane.value].victim; }
  bool in_steps(const PlanBuilder& plan) const;
  std::uint32_t urgent_free_blocks(const PlanBuilder& plan) const;
  bool time_to_collect(PlaneId plane);
  bool choose_victim(PlaneId plane);
  bool fits(BlockId victim, Stream stream) const;
  bool move_pages(BlockId from, Stream to, std::uint32_t limit, std::vector<Phase>* phases, std::uint64_t& moved);
  void erase(BlockId block, std::vector<Phase>* phases);
  bool finish_victim(PlaneId plane, std::vector<Phase>* phases);
  void collect(PlaneId plane, PlanBuilder& plan);
  void collect_pages(PlaneId plane, std::uint32_t limit, std::vector<Phase>& phases);
  void pay(IoPlan& plan);
  void level_wear(PlaneId plane, std::vector<Phase>* phases);

  // block_refresh.cpp
  void note_first_page(PhysicalPageAddress ppa) {
    if (config_.refresh_age.ps > 0 && geometry_.page_in_block(ppa) == 0) note_written(blocks_.block_of(ppa));
  }
  void note_written(BlockId block) { written_.push_back({block, blocks_.erase_count(block), now_}); }
  void note_filled_blocks();
  bool is_old(const WrittenBlock& block) const;
  void refresh(BlockId block, std::vector<Phase>& phases);

  // block_gc.cpp
  std::optional<IoPlan> follow_up(IoPlan plan);
  void empty_failed_blocks(PlanBuilder& plan);

  // block_map.cpp
  IoStatus access_map(LogicalPage page, bool change, PlanBuilder& plan);
  void read_translation_page(std::uint64_t index, PlanBuilder& plan);
  IoStatus write_translation_page(std::uint64_t index, PlanBuilder& plan);
  void entry_moved(LogicalPage page);
  void write_stale_translation_pages(PlanBuilder& plan);
  Stream stream_for(BlockId victim) const;

  void fill_translation_pages(std::uint64_t pages);
  void fill_page_by_page(std::uint64_t pages, std::optional<std::uint64_t> seed);

  BlockFtlConfig config_;
  FlashGeometry geometry_;
  Bytes page_size_;
  Bytes codeword_;  ///< the page where there are none
  FixedDivisor by_page_;
  BlockManager& blocks_;
  BackingStore& store_;
  MediaFaults* faults_;
  Stripe stripe_;
  std::uint64_t entries_per_page_;  ///< of a translation page
  std::uint64_t exported_;          ///< logical pages of the host
  PageMap map_;                     ///< of the host's pages and, behind them, translation pages
  std::optional<MapCache> cache_;
  std::set<std::uint64_t> stale_;     ///< translation pages with entries that were moved without being cached
  std::uint32_t map_cursor_ = 0;      ///< stripe rank of the next translation page
  std::uint32_t cursor_ = 0;          ///< stripe rank of the next host page
  std::uint64_t preconditioned_ = 0;  ///< pages
  std::optional<PlaneId> filling_;    ///< plane of the last unit of a request that pads
  /// The victim of a plane whose pages are being moved. A write that pays for it adds `moves` to `debt` and moves a
  /// page for each `gain` of it.
  struct Collection {
    std::uint32_t victim = kNone;
    std::uint32_t moves = 0;  ///< valid pages of the victim when it was chosen
    std::uint32_t gain = 0;   ///< its other pages; at least one
    std::uint64_t debt = 0;
  };
  std::vector<Collection> collections_;  ///< by plane
  SimTime now_{};
  std::deque<WrittenBlock> written_;           ///< oldest first, with refresh_age
  std::vector<std::deque<WrittenBlock>> old_;  ///< by plane, with refresh_age: what has become old
  std::vector<PlaneId> owed_;                  ///< planes of pages that were written and have not paid for collection
  std::function<bool(PhysicalPageAddress)> held_;
  PlaneLoad* load_ = nullptr;               ///< null: dynamic allocation takes the planes in turn
  std::vector<BlockId> failed_;             ///< retired blocks that may hold valid pages
  std::unordered_set<std::uint64_t> lost_;  ///< logical pages that were moved although they could not be corrected
  std::vector<std::byte> page_image_;       ///< scratch: the page being written
  BlockFtlStats stats_;
};

}  // namespace csdsim::ftl
