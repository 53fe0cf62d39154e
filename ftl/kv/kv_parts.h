// The objects that the KV namespace is made of, each over those before it.
#pragma once

#include <functional>
#include <memory>

#include "ftl/kv/kv_appender.h"
#include "ftl/kv/kv_recovery.h"
#include "ftl/kv/kv_rewriter.h"

namespace csdsim::ftl {

struct KvParts {
  KvParts(const KvFtlConfig& config, BlockManager& blocks_of_drive, BackingStore& store, DramBudget& dram,
          std::unique_ptr<KvMappingPolicy> mapping, MediaFaults* faults, KvFtlStats& stats)
      : flash(config, blocks_of_drive, store, dram, faults, stats), policy(std::move(mapping)) {}

  KvFlash flash;
  std::unique_ptr<KvMappingPolicy> policy;
  SequenceTable table;
  PageOwners owners{flash, table};
  ParkedPages parked{flash};
  KvLosses losses{flash, table, owners, parked};
  ReclaimQueue reclaim{flash};
  BlockEraser eraser{flash, reclaim};
  KvPages pages{flash, *policy};
  KvPlacer placer{flash, *policy, pages, owners, parked, losses, reclaim};
  KvSequences sequences{flash, *policy, table, owners, parked, losses, pages, placer, eraser};
  FlashReader flash_reader{flash, parked, losses, reclaim};
  KvJobs jobs{flash, table, owners, sequences};
  KvMover mover{flash, table, owners, parked, losses, placer, flash_reader, jobs, eraser};
  KvCollector collector{flash, table, parked, pages, sequences, jobs, mover, eraser, reclaim};
  KvReader reader{flash, *policy, table, losses, pages, flash_reader};
  KvWindows windows{flash, placer, losses, flash_reader, reader, jobs};
  KvAppender appender{flash, *policy, sequences, placer, jobs, collector, windows};
  KvRewriter rewriter{flash, table, owners, losses, placer, jobs, collector};
};

/// KvFtl::power_loss
KvDump save_kv(const KvParts& parts);
/// KvFtl::recover
RecoveryResult recover_kv(KvParts& parts, const KvDump& dump, const std::function<void()>& restore_others);

}  // namespace csdsim::ftl
