// Configuration, status and plans of the block namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/units.h"
#include "contracts/page_op.h"
#include "ftl/block/page_map.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/stripe.h"

namespace csdsim::ftl {

/// Called now and then while a drive is aged.
using AgeProgress = std::function<void(std::uint64_t written_pages, std::uint64_t pages)>;

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

/// How much garbage a write collects in a plane with few free blocks.
enum class GcPace : std::uint8_t {
  steps,  ///< a share of a victim, after the write
  blocks  ///< whole victims, before the write
};

/// Where collection moves the data of placement handles (NVMe Base 2.1, 3.2.4: Reclaim Unit Handle Types).
enum class Isolation : std::uint8_t {
  initially,    ///< all handles' moved data into the same blocks
  persistently  ///< into blocks of their handle
};

struct BlockFtlConfig {
  double over_provisioning = 0.07;   ///< share of the namespace's flash that is not exported, in [0, 1)
  std::uint32_t gc_free_blocks = 2;  ///< writes to a plane with at most this many free blocks collect; at least 1
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
  /// What is in DRAM is lost with the power, also the pages of word lines that are not full. So that no version of a
  /// page that was in flash is erased before a newer one is, the word lines that hold newer versions of a block's pages
  /// are filled before its erase, an erase follows all programs of its plan, and a block is collected only where its
  /// erase makes room for a word line. The code that runs the plans lets an erase wait for those programs of earlier
  /// plans that replace pages of its block (BlockFtl::on_replaced).
  bool volatile_lines = false;
  std::uint32_t handles = 1;  ///< placement handles of the host; the block manager has as many
  Isolation isolation = Isolation::initially;
  bool pads = false;  ///< a request ends its word line: its units are programmed with it, the rest stays empty
};

/// Bytes of a map entry in flash.
inline constexpr std::uint32_t kMapEntryBytes = 4;
/// Bytes of a cached entry in DRAM: logical and physical page.
inline constexpr std::uint32_t kCachedEntryBytes = 8;

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
  std::size_t behind = 0;  ///< number of phases at the end that collect garbage; the request does not wait for them

  /// Removes those phases; they must run directly after the others.
  std::vector<Phase> take_behind();
};

/// Who is told what becomes of the blocks of placement handles while a plan is made.
class PlacementObserver {
 public:
  /// So many pages of a block of the handle move within the plane, `first` first. Blocks that pages of several handles
  /// were moved to belong to none.
  virtual void moved(PlacementHandle handle, PlaneId plane, std::uint32_t pages, LogicalPage first) = 0;
  /// Collection has closed the block of the handle before it was full.
  virtual void closed(PlacementHandle handle, PlaneId plane) = 0;

 protected:
  ~PlacementObserver() = default;
};

/// What a write keeps of the pages that it covers partly, read before the write is planned.
struct KeptPages {
  struct Page {
    LogicalPage page;
    PhysicalPageAddress ppa;  ///< address of the content that was read
    bool corrected = true;
  };
  std::vector<Page> pages;
  Phase reads;  ///< reads of these pages
};

}  // namespace csdsim::ftl
