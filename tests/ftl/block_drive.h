// A block namespace with everything it stands on.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "flash_model.h"
#include "ftl/block/block_ftl.h"

namespace csdsim::ftl::test {

struct BlockDrive {
  BlockDrive(const FlashGeometry& g, const BlockQuota& quota, DataMode mode, const BlockFtlConfig& config = {},
             const BlockManagerConfig& manager = {}, MediaFaults* faults = nullptr)
      : blocks(g, quota, manager), store(g, mode), ftl(config, blocks, store, faults), flash(g) {}

  void run(const IoPlan& plan) {
    for (const Phase& phase : plan.phases) {
      for (const PageOp& op : phase) flash.run(op, true);
    }
  }
  /// Brings the flash to what the drive holds after it was filled without page operations.
  void program_what_is_written() {
    const FlashGeometry& g = blocks.geometry();
    for (std::uint64_t ppa = 0; ppa < g.pages(); ++ppa) {
      if (g.page_in_block({ppa}) >= blocks.written_pages(g.block_of({ppa}))) continue;
      flash.run({{ppa}, PageOpKind::program, OpClass::host, 0, static_cast<std::uint32_t>(g.page_size.value)}, true);
    }
  }
  std::uint64_t pages() const { return ftl.capacity().value / blocks.geometry().page_size.value; }

  BlockManager blocks;
  BackingStore store;
  BlockFtl ftl;
  FlashModel flash;
};

/// The mapping is one to one, and blocks count as valid exactly the pages that are mapped.
/// `translation_pages` lie behind those of the host.
inline void check_mapping(const BlockDrive& drive, std::uint64_t translation_pages = 0) {
  const FlashGeometry& g = drive.blocks.geometry();
  std::set<std::uint64_t> used;
  std::map<std::uint32_t, std::uint32_t> valid;
  for (std::uint64_t p = 0; p < drive.pages() + translation_pages; ++p) {
    const PhysicalPageAddress ppa = drive.ftl.lookup(LogicalPage{p});
    if (!ppa.valid()) continue;
    REQUIRE(used.insert(ppa.value).second);
    REQUIRE(drive.blocks.valid(ppa));
    ++valid[g.block_of(ppa).value];
  }
  for (std::uint32_t b = 0; b < g.blocks(); ++b) {
    REQUIRE(drive.blocks.valid_pages(BlockId{b}) == (valid.contains(b) ? valid[b] : 0));
  }
}

}  // namespace csdsim::ftl::test
