// State that all parts of the KV namespace share: the flash, controller DRAM, the configuration and the counters.
#pragma once

#include <algorithm>
#include <cstdint>

#include "contracts/page_op.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/dram_budget.h"
#include "ftl/core/media_faults.h"
#include "ftl/kv/kv_blocks.h"
#include "ftl/kv/kv_ftl_config.h"
#include "ftl/kv/kv_ftl_stats.h"

namespace csdsim::ftl {

struct KvFlash {
  KvFlash(const KvFtlConfig& c, BlockManager& b, BackingStore& s, DramBudget& d, MediaFaults* f, KvFtlStats& counters)
      : config(c), blocks(b, s.geometry()), store(s), dram(d), faults(f), geometry(s.geometry()), stats(counters) {}

  PageOp op(PhysicalPageAddress ppa, PageOpKind kind, OpClass op_class) const {
    const auto bytes = static_cast<std::uint32_t>(geometry.page_size.value);
    return {.ppa = ppa, .kind = kind, .op_class = op_class, .channel_bytes = kind == PageOpKind::erase ? 0 : bytes};
  }

  /// Pages that appends may take: all but a block's worth, which any victim's valid pages fit into.
  std::uint64_t appendable_pages() const {
    const std::uint64_t available = blocks.available_pages();
    return available - std::min<std::uint64_t>(available, geometry.pages_per_block);
  }

  const KvFtlConfig config;
  KvBlocks blocks;
  BackingStore& store;
  DramBudget& dram;
  MediaFaults* const faults;  ///< null: nothing fails
  const FlashGeometry geometry;
  KvFtlStats& stats;
};

}  // namespace csdsim::ftl
