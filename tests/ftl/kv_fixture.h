// A KV namespace with everything it stands on.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "flash_model.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/policies/instinfer.h"

namespace csdsim::ftl::test {

/// A flash of pages of `units` units each, as a block manager counts them.
inline FlashGeometry in_units(FlashGeometry g, std::uint32_t units) {
  g.page_size = {g.page_size.value / units};
  g.pages_per_block *= units;
  return g;
}

struct KvDrive {
  KvDrive(const FlashGeometry& g, const KvFtlConfig& config, DataMode mode, Bytes dram_capacity = Bytes::gib(8),
          const BlockManagerConfig& manager = {}, MediaFaults* faults = nullptr, std::uint32_t units = 1)
      : blocks(in_units(g, units), {0, g.blocks_per_plane - manager.spare_blocks}, manager),
        store(g, mode),
        dram(dram_capacity),
        ftl(config, blocks, store, dram, std::make_unique<InstinferPolicy>(g), faults),
        flash(g) {}

  /// Runs the operations of a job and reports it done; returns the erases.
  std::vector<PageOp> finish(const FlushJob& job) {
    for (const PageOp& op : job.reads) flash.run(op, false);
    for (const PageOp& op : job.programs) flash.run(op, false);
    return ftl.flush_done(job.id);
  }
  void erase(const PageOp& op) {
    flash.run(op, false);
    ftl.erase_done(op.ppa);
  }

  BlockManager blocks;
  BackingStore store;
  DramBudget dram;
  KvFtl ftl;
  FlashModel flash;
};

inline std::vector<Half> random_halves(std::mt19937_64& rng, std::size_t count) {
  std::vector<Half> out(count);
  for (Half& h : out) h = float_to_half(static_cast<float>(static_cast<std::int64_t>(rng() % 20001) - 10000) / 1000.0f);
  return out;
}

}  // namespace csdsim::ftl::test
