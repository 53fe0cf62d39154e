// Erase blocks: which are free, open, full, being erased or bad, and which of their pages are still wanted.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/counter.h"
#include "base/fixed_divisor.h"
#include "base/prefetch.h"
#include "ftl/core/victim_index.h"
#include "ftl/core/zero_array.h"
#include "ftl/core/zero_pieces.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::ftl {

/// The two users of one drive's flash.
enum class Namespace : std::uint8_t { block, kv };
inline constexpr std::size_t kNamespaces = 2;

/// Append points: a plane has at most one open block for each. Pages of different lifetimes go to different streams.
/// Placement handles after the first have further values: see host_stream() and gc_stream().
enum class Stream : std::uint16_t {
  host,
  gc,
  cold,  ///< what static wear levelling moves; opens the most worn free block
  map,
  kv,
  kv_gc,
  kv_cold  ///< likewise, of the KV namespace
};
inline constexpr std::size_t kStreams = 7;

/// Which data a write belongs to, as its host says. Data of different handles are written to different blocks.
using PlacementHandle = StrongId<struct PlacementHandleTag>;
/// Most handles of a drive: placement handles that a namespace may list (NVMe Base 2.1, 8.1.10).
inline constexpr std::uint32_t kMostHandles = 128;
/// Where the host's pages of a handle go.
constexpr Stream host_stream(PlacementHandle handle) {
  return handle.value == 0 ? Stream::host : Stream(kStreams + 2 * (handle.value - 1));
}
/// Where moved pages of a handle go if they stay apart from those of other handles.
constexpr Stream gc_stream(PlacementHandle handle) {
  return handle.value == 0 ? Stream::gc : Stream(kStreams + 2 * (handle.value - 1) + 1);
}
/// The handle of a stream; the first for streams that belong to none.
constexpr PlacementHandle handle_of(Stream s) {
  const auto at = static_cast<std::uint32_t>(s);
  return PlacementHandle{at < kStreams ? 0 : static_cast<std::uint32_t>((at - kStreams) / 2 + 1)};
}
constexpr bool is_host_stream(Stream s) { return s == host_stream(handle_of(s)); }

constexpr Namespace namespace_of(Stream s) {
  return s == Stream::kv || s == Stream::kv_gc || s == Stream::kv_cold ? Namespace::kv : Namespace::block;
}

enum class BlockState : std::uint8_t {
  free,
  open,
  full,
  collecting,  ///< its valid pages are being moved
  erasing,
  retired,  ///< failed; leaves service when its last valid page has gone
  bad
};

/// How many erase blocks of each plane a namespace may hold. Free blocks are shared, so that wear is shared; the quotas
/// keep one namespace from starving the other.
struct BlockQuota {
  std::uint32_t block_namespace = 0;
  std::uint32_t kv_namespace = 0;
};

/// Which free block is opened next, but for the cold stream. Blocks that were never used come first, in the order of
/// their addresses.
enum class FreeBlockChoice : std::uint8_t {
  oldest,     ///< erased longest ago
  least_worn  ///< dynamic wear levelling: the fewest erases, of those the one erased longest ago
};

struct BlockManagerConfig {
  VictimPolicy gc = {};
  FreeBlockChoice free_block = FreeBlockChoice::oldest;
  std::uint32_t spare_blocks = 0;  ///< blocks of each plane that replace bad ones
  double factory_bad_blocks = 0;   ///< share of blocks that are bad from the start, drawn block by block
  std::uint64_t seed = 1;          ///< seed of the draw
  std::uint32_t handles = 1;       ///< placement handles of the block namespace, at most kMostHandles
};

/// What a drive remembers, without power, of a block that was in use or has failed.
struct BlockRecord {
  BlockId block;
  std::uint32_t erases = 0;
  std::uint32_t written = 0;  ///< pages handed out since the last erase
  BlockState state = BlockState::free;
  Namespace ns = Namespace::block;  ///< its owner; of a free block, its last owner
  Stream stream = Stream::host;     ///< likewise, that it was opened for
  bool operator==(const BlockRecord&) const = default;
};

/// Erases of the blocks that are in service.
struct WearStatistics {
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  double mean = 0;
  double deviation = 0;  ///< standard deviation

  static constexpr CounterInfo kMin{"erases_min", "erases", "Fewest erases of a block in service."},
      kMean{"erases_mean", "erases", "Mean erases of blocks in service."},
      kMax{"erases_max", "erases", "Most erases of a block in service."},
      kDeviation{"erases_deviation", "erases", "Standard deviation of the erases of blocks in service."};
};

/// Block states and page allocation for the whole drive. Pages of a block are handed out in order, as NAND requires.
/// Running out of space is an empty result, never an exception.
///
/// A block that fails is replaced by a spare block of its plane. When a plane has no spare left, its namespace loses
/// the block and the drive is read-only from then on.
class BlockManager {
 public:
  /// Throws UserError if the quotas and spare blocks do not fit into a plane, or if a plane has more factory bad blocks
  /// than spare blocks.
  BlockManager(const FlashGeometry& geometry, const BlockQuota& quota, const BlockManagerConfig& config = {});

  /// The next page of `stream` in `plane`, counted as valid; opens a free block where needed. invalid() if there is
  /// none.
  PhysicalPageAddress take_page(PlaneId plane, Stream stream);
  /// The same; empty if there is none.
  std::optional<PhysicalPageAddress> allocate(PlaneId plane, Stream stream) {
    const PhysicalPageAddress page = take_page(plane, stream);
    return page.valid() ? std::optional(page) : std::nullopt;
  }

  /// The next pages of the stream's open block, as many as it has left and at most `most`: the same as so many calls of
  /// allocate(). Their number is 0 if no block is open.
  struct PageRun {
    PhysicalPageAddress first;
    std::uint32_t count = 0;
  };
  PageRun allocate_run(PlaneId plane, Stream stream, std::uint32_t most);

  /// Opens a free block of `plane` that belongs to no stream: only next_page() and close() fill it. Empty if the
  /// namespace has no block left there.
  std::optional<BlockId> open(PlaneId plane, Namespace ns);
  /// The next page of a block that open() returned, counted as valid; the last one closes it. Throws InternalError if
  /// the block is not open.
  PhysicalPageAddress next_page(BlockId block);

  /// Same state as `pages` calls of allocate(), in O(blocks). Throws InternalError if they do not fit.
  void fill(PlaneId plane, Stream stream, std::uint64_t pages);

  /// Marks a page invalid. Returns true if its block is full (or being collected) and has no valid page left: it may
  /// be erased. Throws InternalError if the page is not valid.
  bool invalidate(PhysicalPageAddress ppa);

  /// The same for each of `count` pages of one block, before the last `later` pages were handed out.
  bool invalidate_run(PhysicalPageAddress first, std::uint32_t count, std::uint64_t later = 0);
  /// Prefetches the memory that invalidate() of these pages changes. The processor waits for the page tables of a line
  /// that it is to prefetch, but for those of several lines at a time.
  void prefetch(std::span<const PhysicalPageAddress> pages) const {
    for (const PhysicalPageAddress ppa : pages) prefetch_line(&stale_[block_of(ppa).value]);
    for (const PhysicalPageAddress ppa : pages) {
      const BlockId block = block_of(ppa);
      prefetch_line(stale_bits(block) + (ppa.value - first_page(block).value) / kWordBits);
      prefetch_line(&blocks_[block.value]);
      victims_.prefetch(block);
    }
  }

  /// open -> full: its unwritten pages come back with its erase.
  void close(BlockId block);
  /// full -> collecting: victim() returns it no more.
  void begin_collect(BlockId block);
  /// full or collecting -> erasing. Throws InternalError from another state or with valid pages.
  void begin_erase(BlockId block);
  /// erasing -> free.
  void finish_erase(BlockId block);
  /// erasing -> bad: the erase failed.
  void fail_erase(BlockId block);
  /// open, full or collecting -> retired: a program failed. Its valid pages stay readable; with the last one it is bad.
  void retire(BlockId block);

  /// The victim of `ns` in `plane` that the policy chooses. Empty if every full block is full of valid pages.
  std::optional<BlockId> victim(PlaneId plane, Namespace ns);
  /// From now on victims have at least so many pages that are not valid; one, unless this was called.
  void want_gain(std::uint32_t pages) { victims_.want_gain(pages); }
  /// Pages that the best victim makes room for, if none of its pages became invalid while the last `quiet` pages were
  /// handed out; otherwise 0.
  std::uint32_t settled_gain(PlaneId plane, Namespace ns, std::uint64_t quiet) {
    return victims_.settled_gain(group(plane, ns), clock_, quiet);
  }
  /// The full block of `ns` in `plane` with the fewest erases, the lowest address in a tie.
  std::optional<BlockId> least_worn(PlaneId plane, Namespace ns) const;

  /// Records of all blocks that were opened once, plane by plane: free blocks in the order in which they were erased,
  /// then the others by address.
  std::vector<BlockRecord> records() const;
  /// Takes over a record of another manager with the same geometry, quotas and configuration; in the order of
  /// records(), before anything is allocated. `valid` lists the block's pages to keep, ascending. Blocks in use become
  /// full, also those whose erase had not ended: no page goes to a block that was open when power failed. Throws
  /// InternalError if the block is in use already.
  void restore(const BlockRecord& record, std::span<const PhysicalPageAddress> valid);

  BlockState state(BlockId block) const { return blocks_[block.value].state; }
  Namespace namespace_of_block(BlockId block) const { return blocks_[block.value].ns; }
  /// The stream that the block was opened for last.
  Stream stream_of(BlockId block) const { return blocks_[block.value].stream; }
  std::uint32_t handles() const { return config_.handles; }
  std::uint32_t valid_pages(BlockId block) const { return blocks_[block.value].valid; }
  std::uint32_t written_pages(BlockId block) const { return blocks_[block.value].written; }
  std::uint32_t erase_count(BlockId block) const { return blocks_[block.value].erases; }
  /// The first valid page of `block` at or after page `from` of it; empty if there is none.
  std::optional<std::uint32_t> next_valid(BlockId block, std::uint32_t from) const;
  bool valid(PhysicalPageAddress ppa) const;
  /// How many pages from valid page `from` on are valid, at most `most`.
  std::uint32_t valid_run(BlockId block, std::uint32_t from, std::uint32_t most) const;

  /// Counts a read of the block; returns how many came before it since the last erase.
  std::uint32_t count_read(BlockId block) { return blocks_[block.value].reads++; }
  /// Reads of its pages since the last erase.
  std::uint32_t reads(BlockId block) const { return blocks_[block.value].reads; }

  /// Blocks of `plane` that `ns` may still open.
  std::uint32_t available_blocks(PlaneId plane, Namespace ns) const {
    const Plane& p = planes_[plane.value];
    return quota_[index(ns)] - p.lost[index(ns)] - p.used[index(ns)];
  }
  std::optional<BlockId> open_block(PlaneId plane, Stream stream) const;
  /// Pages left in the open block of `stream` in `plane`.
  std::uint32_t open_pages(PlaneId plane, Stream stream) const;
  /// Pages that `ns` can still allocate anywhere, without an erase.
  std::uint64_t available_pages(Namespace ns) const { return available_pages_[index(ns)]; }
  std::uint64_t valid_pages(Namespace ns) const { return valid_pages_[index(ns)]; }
  /// All pages of the blocks that `ns` may hold.
  std::uint64_t total_pages(Namespace ns) const;
  /// Pages that running erases will give back to `ns`.
  std::uint64_t erasing_pages(Namespace ns) const { return erasing_pages_[index(ns)]; }
  /// No block of the plane has ever been opened.
  bool pristine(PlaneId plane) const { return planes_[plane.value].opened == 0; }
  bool has_factory_bad_blocks() const { return factory_bad_ > 0; }

  /// A block failed in a plane that had no spare block left.
  bool read_only() const { return read_only_; }
  std::uint64_t factory_bad_blocks() const { return factory_bad_; }
  std::uint64_t grown_bad_blocks() const { return grown_bad_; }
  static constexpr CounterInfo kGrownBadBlocks{"grown_bad_blocks", "blocks",
                                               "Blocks of either namespace that failed in use."};
  std::uint32_t spare_blocks_left(PlaneId plane) const {
    return config_.spare_blocks - planes_[plane.value].spares_used;
  }
  std::uint32_t most_erases(PlaneId plane) const { return planes_[plane.value].most_erases; }
  WearStatistics wear() const;
  /// Registers failed blocks and wear; the manager must outlive the dump.
  void register_statistics(Statistics& statistics) const;

  const FlashGeometry& geometry() const { return geometry_; }
  std::uint32_t quota(Namespace ns) const { return quota_[index(ns)]; }
  BlockId block_of(PhysicalPageAddress ppa) const {
    return BlockId{static_cast<std::uint32_t>(by_block_.quotient(ppa.value))};
  }
  PlaneId plane_of(PhysicalPageAddress ppa) const {
    return PlaneId{static_cast<std::uint32_t>(by_plane_.quotient(ppa.value))};
  }
  PhysicalPageAddress first_page(BlockId block) const {
    return {std::uint64_t{block.value} * geometry_.pages_per_block};
  }
  /// Pages of its block from this one on.
  std::uint32_t pages_behind(PhysicalPageAddress ppa) const {
    return static_cast<std::uint32_t>(first_page(block_of(ppa)).value + geometry_.pages_per_block - ppa.value);
  }
  PlaneId plane_of(BlockId block) const { return PlaneId{block.value / geometry_.blocks_per_plane}; }

 private:
  static constexpr std::uint32_t kWordBits = 64;  ///< bits of a word of stale_
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t index(Namespace ns) { return static_cast<std::size_t>(ns); }
  static constexpr std::size_t index(Stream s) { return static_cast<std::size_t>(s); }

  /// All zeros: a free block that was never used.
  struct Block {
    std::uint32_t written;
    std::uint32_t valid;
    std::uint32_t erases;
    std::uint32_t reads;  ///< since the last erase
    BlockState state;
    Namespace ns;
    Stream stream;
  };
  struct Plane {
    std::uint32_t fresh = 0;        ///< blocks below it have been opened at least once, or are bad
    std::uint32_t opened = 0;       ///< times a block was opened
    std::uint32_t spares_used = 0;  ///< bad blocks that a spare block stands in for
    std::uint32_t most_erases = 0;
    std::deque<std::uint32_t> recycled;  ///< erased blocks, oldest first
    std::array<std::uint32_t, kNamespaces> used{};
    std::array<std::uint32_t, kNamespaces> lost{};  ///< blocks that the quota has lost: bad ones beyond the spare ones
  };

  /// The open block of a stream, by its number in the plane; kNone if there is none.
  std::uint32_t& open_of(PlaneId plane, Stream stream) { return open_[plane.value * streams_ + index(stream)]; }
  std::uint32_t open_of(PlaneId plane, Stream stream) const { return open_[plane.value * streams_ + index(stream)]; }
  BlockId block_id(PlaneId plane, std::uint32_t block) const {
    return BlockId{plane.value * geometry_.blocks_per_plane + block};
  }
  std::uint32_t group(PlaneId plane, Namespace ns) const {
    return plane.value * static_cast<std::uint32_t>(kNamespaces) + static_cast<std::uint32_t>(ns);
  }
  void draw_factory_bad_blocks();
  std::uint32_t take_free_block(Plane& plane, PlaneId id, Stream stream);
  std::uint32_t open_or_take(PlaneId plane, Stream stream);
  std::optional<std::uint32_t> open_free_block(PlaneId plane, Stream stream);
  PhysicalPageAddress hand_out(BlockId block);
  std::uint64_t fill_fresh(PlaneId plane, Stream stream, std::uint64_t pages);
  void drop_open(PlaneId plane, BlockId block);
  bool close_if_full(BlockId block);
  void leave_service(BlockId block);
  void append(BlockId block, std::uint32_t count);
  /// One bit per page of the block: it was handed out and is not valid any more.
  std::uint64_t* stale_bits(BlockId block) {
    std::uint64_t*& bits = stale_[block.value];
    if (bits == nullptr) [[unlikely]]
      bits = static_cast<std::uint64_t*>(stale_memory_.take());
    return bits;
  }
  const std::uint64_t* stale_bits(BlockId block) const {
    const std::uint64_t* const bits = stale_[block.value];
    return bits == nullptr ? none_stale_.data() : bits;
  }

  FlashGeometry geometry_;
  BlockManagerConfig config_;
  FixedDivisor by_block_;
  FixedDivisor by_plane_;
  std::size_t words_;    ///< words of stale_ per block
  std::size_t streams_;  ///< streams of a plane
  std::array<std::uint32_t, kNamespaces> quota_{};
  std::array<std::uint64_t, kNamespaces> available_pages_{};
  std::array<std::uint64_t, kNamespaces> erasing_pages_{};
  std::array<std::uint64_t, kNamespaces> valid_pages_{};
  ZeroArray<Block> blocks_;
  std::vector<Plane> planes_;
  std::vector<std::uint32_t> open_;  ///< by plane and stream
  ZeroArray<std::uint64_t*> stale_;  ///< bits of each block, null where it never had a page that is not valid
  ZeroPieces stale_memory_;
  std::vector<std::uint64_t> none_stale_;
  VictimIndex victims_;
  std::uint64_t clock_ = 0;  ///< pages handed out
  std::uint64_t factory_bad_ = 0;
  std::uint64_t grown_bad_ = 0;
  bool erased_ = false;  ///< a block has been erased
  bool read_only_ = false;
};

}  // namespace csdsim::ftl
