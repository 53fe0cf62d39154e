// Erase blocks: which are free, open, full or being erased, and how many of their pages are still wanted.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "base/address.h"

namespace csdsim::ftl {

/// The two users of one drive's flash.
enum class Namespace : std::uint8_t { block, kv };
inline constexpr std::size_t kNamespaces = 2;

/// Append points: a plane has at most one open block for each. Pages of different lifetimes go to different streams.
enum class Stream : std::uint8_t { host, gc, kv };
inline constexpr std::size_t kStreams = 3;
constexpr Namespace namespace_of(Stream s) { return s == Stream::kv ? Namespace::kv : Namespace::block; }

enum class BlockState : std::uint8_t { free, open, full, erasing };

/// How many erase blocks of each plane a namespace may hold. Free blocks are shared (so that wear is), quotas are not:
/// one namespace cannot starve the other.
struct BlockQuota {
  std::uint32_t block_namespace = 0;
  std::uint32_t kv_namespace = 0;
};

/// Block states and page allocation for the whole drive. Pages of a block are handed out in order, as NAND requires.
/// Running out of space is an empty result, never an exception.
class BlockManager {
 public:
  /// Throws UserError if the quotas do not fit into a plane.
  BlockManager(const FlashGeometry& geometry, const BlockQuota& quota);

  /// The next page of `stream` in `plane`, counted as valid; opens a free block where needed.
  std::optional<PhysicalPageAddress> allocate(PlaneId plane, Stream stream);

  /// Same state as `pages` calls of allocate(), in O(blocks). Throws InternalError if they do not fit.
  void fill(PlaneId plane, Stream stream, std::uint64_t pages);

  /// A page lost its meaning. True if its block is now full and without valid pages: it may be erased.
  bool invalidate(PhysicalPageAddress ppa);

  /// full -> erasing. Throws InternalError if the block is not full or has valid pages.
  void begin_erase(BlockId block);
  /// erasing -> free.
  void finish_erase(BlockId block);

  /// Greedy victim: the full block of `ns` in `plane` with the fewest valid pages; the lowest address wins a tie. Empty
  /// if every full block is full of valid pages.
  std::optional<BlockId> victim(PlaneId plane, Namespace ns) const;

  BlockState state(BlockId block) const { return blocks_[block.value].state; }
  std::uint32_t valid_pages(BlockId block) const { return blocks_[block.value].valid; }
  std::uint32_t written_pages(BlockId block) const { return blocks_[block.value].written; }
  std::uint32_t erase_count(BlockId block) const { return blocks_[block.value].erases; }

  /// Blocks of `plane` that `ns` may still open.
  std::uint32_t available_blocks(PlaneId plane, Namespace ns) const;
  /// Pages left in the open block of `stream` in `plane`.
  std::uint32_t open_pages(PlaneId plane, Stream stream) const;
  /// Pages that `ns` can still allocate anywhere, without an erase.
  std::uint64_t available_pages(Namespace ns) const { return available_pages_[index(ns)]; }
  /// Pages that running erases will give back to `ns`.
  std::uint64_t erasing_pages(Namespace ns) const { return erasing_pages_[index(ns)]; }
  /// No block of the plane has ever been opened.
  bool pristine(PlaneId plane) const { return planes_[plane.value].fresh == 0; }

  const FlashGeometry& geometry() const { return geometry_; }
  std::uint32_t quota(Namespace ns) const { return quota_[index(ns)]; }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t index(Namespace ns) { return static_cast<std::size_t>(ns); }
  static constexpr std::size_t index(Stream s) { return static_cast<std::size_t>(s); }

  struct Block {
    std::uint32_t written = 0;
    std::uint32_t valid = 0;
    std::uint32_t erases = 0;
    BlockState state = BlockState::free;
    Namespace ns = Namespace::block;
  };
  struct Plane {
    std::uint32_t fresh = 0;             ///< blocks below it have been opened at least once
    std::deque<std::uint32_t> recycled;  ///< erased blocks, oldest first: the simplest wear levelling
    std::array<std::uint32_t, kStreams> open{kNone, kNone, kNone};
    std::array<std::uint32_t, kNamespaces> used{};
  };

  BlockId block_id(PlaneId plane, std::uint32_t block) const {
    return BlockId{plane.value * geometry_.blocks_per_plane + block};
  }
  PlaneId plane_of(BlockId block) const { return PlaneId{block.value / geometry_.blocks_per_plane}; }
  std::uint32_t open_block(PlaneId plane, Stream stream);

  FlashGeometry geometry_;
  std::array<std::uint32_t, kNamespaces> quota_{};
  std::array<std::uint64_t, kNamespaces> available_pages_{};
  std::array<std::uint64_t, kNamespaces> erasing_pages_{};
  std::vector<Block> blocks_;
  std::vector<Plane> planes_;
};

}  // namespace csdsim::ftl
