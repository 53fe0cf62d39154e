// The block namespace: page-level mapping with garbage collection and wear levelling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ftl/block/block_ftl_stats.h"
#include "ftl/block/block_recovery.h"
#include "ftl/block/block_types.h"
#include "ftl/block/page_map.h"
#include "ftl/block/plane_load.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/media_faults.h"

namespace csdsim::ftl {

struct BlockParts;
class PlanBuilder;

/// Offsets and lengths are bytes of the namespace. State changes at once; the returned plan has the operations. `data`
/// and `out` are empty in timing mode and `length` bytes long otherwise.
///
/// A page whose program fails is programmed again elsewhere in its plane; its block is retired: the valid pages move
/// out, and a spare block replaces it. A block whose erase fails is replaced too. Without a spare block the drive is
/// read-only.
///
/// A write to a plane with few free blocks also collects garbage there (GcPace). With `steps`, each write moves a few
/// valid pages of the victim: its valid pages, divided by its other pages. The victim is erased when enough writes have
/// come to fill the room that it makes. If only one block is free, a write that needs a block first moves the rest of
/// the victim. age() records no operations, and collects whole blocks.
///
/// With a cached map, a request first reads the translation pages of the entries that are not cached, and writes back
/// those whose dirty entries are evicted for them. Where garbage collection moves pages whose entries are not cached,
/// the request that collects writes their translation pages.
class BlockFtl {
 public:
  /// Throws UserError if the namespace's share of the flash is too small to collect garbage in, or on a bad config.
  /// `faults`, if given, must outlive the FTL; null: nothing fails.
  BlockFtl(const BlockFtlConfig& config, BlockManager& blocks, BackingStore& store, MediaFaults* faults = nullptr);
  ~BlockFtl();

  /// Exported capacity: (1 - over_provisioning) of the namespace's flash, and never the blocks that collection needs.
  Bytes capacity() const;

  /// What the map addresses: a mapping unit.
  Bytes page_size() const;

  bool map_is_cached() const;

  /// The map operations of a read: none unless the map is cached.
  IoPlan find(Bytes offset, Bytes length);
  /// Appends the page reads that it takes to `ops`, which may run side by side. Where the map is cached, find() of
  /// these bytes comes first.
  IoStatus read(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops);
  /// Both as one plan, which is empty if no page of it is in flash.
  IoPlan read(Bytes offset, Bytes length, std::span<std::byte> out = {});

  /// A partly covered page is read, merged and written. Within capacity() space cannot run out before blocks are lost.
  /// If a page fails, it keeps its content, and the pages before it are written. Pages of `kept` that have not been
  /// written since are not read again.
  ///
  /// The pages go to blocks of `handle`, which is one of BlockFtlConfig::handles, and with PageAllocation::dynamic to
  /// `plane`, if it is given and has room.
  IoPlan write(Bytes offset, Bytes length, std::span<const std::byte> data = {}, const KeptPages* kept = nullptr,
               PlacementHandle handle = {}, std::optional<PlaneId> plane = std::nullopt);
  /// The same in timing mode without a plan: state, map and counters are as after write(). What it takes stays in the
  /// load of place_by(): planes have worked equally long.
  IoStatus write_state(Bytes offset, Bytes length, PlacementHandle handle = {});

  /// Writes that need no plan: they go into one open word line and do not fill it, or program a line of one page.
  /// `first` is the place of the first page, `plane` its plane, `writes` their number, and `behind` collects garbage as
  /// the plan of a write does. With `program`, `replaced` is the block of the older version that the callback of
  /// on_replaced() would have been told of.
  struct LinePart {
    PhysicalPageAddress first;
    PlaneId plane;
    std::uint32_t writes = 0;
    std::optional<PageOp> program;
    std::optional<BlockId> replaced;
    std::vector<Phase> behind;
  };
  /// Writes so where it can and where pages are only places, without bytes. Otherwise nothing is written: write() is to
  /// be called. At most `most` writes of the same length follow each other; those after the first, which the line has
  /// room for, are written as by calls of their own.
  std::optional<LinePart> write_in_line(Bytes offset, Bytes length, PlacementHandle handle, std::uint32_t most = 1);

  /// The reads of the pages that such a write covers partly. Callers that have them done first plan the write when its
  /// data is complete, so that no plane waits for a read on another plane. Nothing with a cached map, whose entries
  /// have to be read before.
  KeptPages keep(Bytes offset, Bytes length);

  /// The programs that fill the word lines of these pages, with units that stay empty, where the host has begun the
  /// line and not filled it: with them the pages are in flash. No phase if there is no such line.
  IoPlan fill_lines(std::span<const PhysicalPageAddress> pages);

  /// Pages that are covered wholly read as zeros from now on; partly covered ones keep their bytes.
  IoPlan trim(Bytes offset, Bytes length);

  /// Lets writes change pages in the write buffer whose program has not begun; `held` says which these are.
  void coalesce(std::function<bool(PhysicalPageAddress)> held);

  /// Sets who is told, while a plan is made, where it programs a page of the host and where the older version is that
  /// this replaces. Without power an erase must not destroy the older one before the program is done. With `moves`,
  /// also where it moves a page: needed where a plane of the FTL is several of the flash.
  void on_replaced(std::function<void(PhysicalPageAddress to, PhysicalPageAddress old)> told, bool moves = false);

  /// Lets PageAllocation::dynamic take the plane with the least load. `load` must outlive the FTL. Callers add the
  /// operations of a plan to it when they get the plan, and remove them when the plan is done.
  void place_by(PlaneLoad& load);
  bool places_dynamically() const;
  const StripeOrder& stripe_order() const;

  /// The observer must outlive the FTL.
  void observe_placement(PlacementObserver& observer);
  /// Pages that the block of a handle in a plane has left; those of a whole block where the next write opens one.
  std::uint32_t unit_pages_left(PlaneId plane, PlacementHandle handle) const;
  /// Closes that block, if one is open: the rest of its last word line is programmed without data.
  IoPlan end_unit(PlaneId plane, PlacementHandle handle);

  bool collects_in_background() const;
  /// The plane has at most background_free_blocks free blocks, and something to collect.
  bool wants_background_step(PlaneId plane) const;
  /// A piece of background garbage collection in `plane`: moves at most gc_step_pages pages of a victim, and erases it
  /// once it is empty. Empty if the plane wants none. A write that finds too few free blocks first finishes the
  /// collection that was begun.
  std::optional<IoPlan> background_step(PlaneId plane);
  /// A piece of static wear levelling in `plane`, which erases of another namespace have worn. Empty if the erase
  /// counts differ by at most the allowed spread.
  std::optional<IoPlan> wear_step(PlaneId plane);

  bool refreshes() const;
  /// Sets the current time, from which the age of blocks is computed (refresh_age). It does not decrease.
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
  void age(double overwrites, std::uint64_t seed, const AgeProgress& progress = {});

  /// The number of trims of pages so far, and whether some of them are in DRAM only. A flush programs a page in the
  /// firmware's reserved area for them. When this program is done, call trims_saved() with the number that trims() gave
  /// when the flush was planned.
  std::uint64_t trims() const;
  bool has_unsaved_trims() const;
  void trims_saved(std::uint64_t trims);

  /// What is left of the namespace in the drive's dump and in the firmware's reserved area when the power fails. Call
  /// it before BackingStore::lose_power(). Throws UserError in timing mode.
  BlockDump power_loss(const PowerCut& cut) const;
  /// The drive is switched on again, with a new BlockManager in the place of the old one. All state but the counters is
  /// that of a new drive: call coalesce(), place_by() and on_replaced() again.
  void forget();
  /// Finds what survived, on a drive that was just switched on. The plan is to be run as that of a write; if power
  /// fails before, the pages that it programs are in DRAM as those of other writes. Throws UserError in timing mode.
  BlockRecovery recover(const BlockDump& dump);

  /// From now on moves() counts the pages of the host that move, for each part of the namespace of so many pages, a
  /// power of two.
  void count_moves(std::uint64_t pages_of_part);
  const std::vector<std::uint64_t>& moves() const;

  PhysicalPageAddress lookup(LogicalPage page) const;
  /// Prefetches into the processor's cache what a later write() of these bytes reads and changes of the pages that it
  /// replaces. With length 0 it prefetches only the map's entry of the first page, which the call with a length reads.
  void prefetch_write(Bytes offset, Bytes length);
  bool read_only() const;
  const BlockFtlStats& stats() const;

 private:
  bool in_range(Bytes offset, Bytes length) const { return offset <= capacity() && length <= capacity() - offset; }
  IoStatus write_pages(Bytes offset, Bytes length, std::span<const std::byte> data, const KeptPages* kept,
                       PlacementHandle handle, PlanBuilder& builder);
  std::optional<IoPlan> follow_up(std::vector<Phase> phases);
  IoPlan finish(IoStatus status, PlanBuilder& builder);

  std::unique_ptr<BlockFtlStats> stats_;
  std::unique_ptr<BlockParts> parts_;
  PlacementObserver* observer_ = nullptr;
};

}  // namespace csdsim::ftl
