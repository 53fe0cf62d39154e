#include "ftl/kv/kv_blocks.h"

#include <fmt/format.h>

#include "base/error.h"

namespace csdsim::ftl {

KvBlocks::KvBlocks(BlockManager& blocks, const FlashGeometry& pages)
    : blocks_(blocks),
      geometry_(pages),
      units_(static_cast<std::uint32_t>(pages.page_size.value / blocks.geometry().page_size.value)) {
  const FlashGeometry& units = blocks.geometry();
  if (units.page_size * units_ == pages.page_size && units.pages_per_block == pages.pages_per_block * units_ &&
      units.blocks_per_plane == pages.blocks_per_plane && units.planes() == pages.planes())
    return;
  throw InternalError(fmt::format("{} pages of {} B do not consist of {} units of {} B", geometry_.pages(),
                                  geometry_.page_size.value, blocks.geometry().pages(),
                                  blocks.geometry().page_size.value));
}

/// A block holds whole pages, and only whole pages are taken from it: the units of a page follow one another.
PhysicalPageAddress KvBlocks::take_page(PlaneId plane, Stream stream) {
  const PhysicalPageAddress first = blocks_.take_page(plane, stream);
  if (!first.valid() || units_ == 1) return first;
  for (std::uint32_t i = 1; i < units_; ++i) blocks_.take_page(plane, stream);
  return {first.value / units_};
}

PhysicalPageAddress KvBlocks::next_page(BlockId block) {
  const PhysicalPageAddress first = blocks_.next_page(block);
  for (std::uint32_t i = 1; i < units_; ++i) blocks_.next_page(block);
  return {first.value / units_};
}

bool KvBlocks::invalidate(PhysicalPageAddress page) {
  bool empty = false;
  for (std::uint32_t i = 0; i < units_; ++i) empty = blocks_.invalidate({first_unit(page).value + i});
  return empty;
}

std::optional<std::uint32_t> KvBlocks::next_valid(BlockId block, std::uint32_t from) const {
  const auto unit = blocks_.next_valid(block, from * units_);
  return unit ? std::optional(*unit / units_) : std::nullopt;
}

std::vector<BlockRecord> KvBlocks::records() const {
  std::vector<BlockRecord> records = blocks_.records();
  for (BlockRecord& record : records)
    if (record.ns == Namespace::kv) record.written /= units_;
  return records;
}

void KvBlocks::restore(const BlockRecord& record, std::span<const PhysicalPageAddress> valid) {
  BlockRecord of_units = record;
  if (record.ns == Namespace::kv) of_units.written *= units_;
  std::vector<PhysicalPageAddress> units;
  units.reserve(valid.size() * units_);
  for (const PhysicalPageAddress page : valid)
    for (std::uint32_t i = 0; i < units_; ++i) units.push_back({first_unit(page).value + i});
  blocks_.restore(of_units, units);
}

}  // namespace csdsim::ftl
