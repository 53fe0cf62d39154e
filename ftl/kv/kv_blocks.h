// The erase blocks as the KV namespace sees them: in pages, also where the map of the block namespace has smaller
// units.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/address.h"
#include "ftl/core/block_manager.h"

namespace csdsim::ftl {

/// A BlockManager that counts in units, a whole number of which make a page. The KV namespace takes and gives back all
/// units of a page at once, so that its pages are aligned. Every address and count here is in pages; the functions are
/// those of BlockManager otherwise.
class KvBlocks {
 public:
  /// `pages`: the same blocks in pages. `blocks` must outlive this. Throws InternalError if a page is no whole number
  /// of units, or the planes and blocks differ.
  KvBlocks(BlockManager& blocks, const FlashGeometry& pages);

  const FlashGeometry& geometry() const { return geometry_; }

  PhysicalPageAddress take_page(PlaneId plane, Stream stream);
  std::optional<BlockId> open(PlaneId plane) { return blocks_.open(plane, Namespace::kv); }
  PhysicalPageAddress next_page(BlockId block);
  bool invalidate(PhysicalPageAddress page);

  void close(BlockId block) { blocks_.close(block); }
  void begin_collect(BlockId block) { blocks_.begin_collect(block); }
  void begin_erase(BlockId block) { blocks_.begin_erase(block); }
  void finish_erase(BlockId block) { blocks_.finish_erase(block); }
  void fail_erase(BlockId block) { blocks_.fail_erase(block); }
  void retire(BlockId block) { blocks_.retire(block); }
  std::optional<BlockId> victim(PlaneId plane) { return blocks_.victim(plane, Namespace::kv); }
  std::optional<BlockId> least_worn(PlaneId plane) const { return blocks_.least_worn(plane, Namespace::kv); }

  /// Records of blocks of the block namespace count their pages in units.
  std::vector<BlockRecord> records() const;
  void restore(const BlockRecord& record, std::span<const PhysicalPageAddress> valid);

  BlockState state(BlockId block) const { return blocks_.state(block); }
  std::uint32_t valid_pages(BlockId block) const { return blocks_.valid_pages(block) / units_; }
  std::uint32_t written_pages(BlockId block) const { return blocks_.written_pages(block) / units_; }
  std::uint32_t erase_count(BlockId block) const { return blocks_.erase_count(block); }
  std::uint32_t most_erases(PlaneId plane) const { return blocks_.most_erases(plane); }
  std::optional<std::uint32_t> next_valid(BlockId block, std::uint32_t from) const;
  bool valid(PhysicalPageAddress page) const { return blocks_.valid(first_unit(page)); }
  std::uint32_t count_read(BlockId block) { return blocks_.count_read(block); }
  std::uint32_t reads(BlockId block) const { return blocks_.reads(block); }

  std::uint32_t available_blocks(PlaneId plane) const { return blocks_.available_blocks(plane, Namespace::kv); }
  std::optional<BlockId> open_block(PlaneId plane, Stream stream) const { return blocks_.open_block(plane, stream); }
  std::uint32_t open_pages(PlaneId plane, Stream stream) const { return blocks_.open_pages(plane, stream) / units_; }
  std::uint64_t available_pages() const { return blocks_.available_pages(Namespace::kv) / units_; }
  std::uint64_t valid_pages() const { return blocks_.valid_pages(Namespace::kv) / units_; }
  std::uint64_t total_pages() const { return blocks_.total_pages(Namespace::kv) / units_; }
  std::uint64_t erasing_pages() const { return blocks_.erasing_pages(Namespace::kv) / units_; }
  std::uint32_t quota() const { return blocks_.quota(Namespace::kv); }
  bool read_only() const { return blocks_.read_only(); }

  BlockId block_of(PhysicalPageAddress page) const { return blocks_.block_of(first_unit(page)); }
  PlaneId plane_of(PhysicalPageAddress page) const { return blocks_.plane_of(first_unit(page)); }
  PlaneId plane_of(BlockId block) const { return blocks_.plane_of(block); }
  PhysicalPageAddress first_page(BlockId block) const { return {blocks_.first_page(block).value / units_}; }

 private:
  PhysicalPageAddress first_unit(PhysicalPageAddress page) const { return {page.value * units_}; }

  BlockManager& blocks_;
  FlashGeometry geometry_;
  std::uint32_t units_;  ///< units of a page
};

}  // namespace csdsim::ftl
