// Power loss: what is left of the block namespace, and how it recovers (docs/adr/0030-block-recovery.md).
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "ftl/block/block_types.h"
#include "ftl/block/saved_image.h"
#include "ftl/block/trim_log.h"
#include "ftl/core/block_manager.h"

namespace csdsim::ftl {

struct BlockParts;
class PlanBuilder;

/// When the power fails, as whoever runs the plans knows it.
struct PowerCut {
  bool capacitors = false;  ///< they power the drive until it has saved what is in DRAM
  /// Pages of plans whose programs have not completed, and those of word lines that are not full. A page may stand here
  /// twice: if it waits for a program, an erase and another program.
  std::vector<PhysicalPageAddress> in_dram;
  std::vector<BlockId> unerased;  ///< erases of plans that have not completed, a block once for each
};

/// What a drive has of the block namespace when it is switched on again. It contains no map: the map is rebuilt from
/// what is stored beside each page.
struct BlockDump {
  std::vector<BlockRecord> blocks;  ///< kept by the firmware in a reserved area
  TrimLog::Stamps trims;            ///< likewise; with capacitors also those that were in DRAM
  std::vector<SavedImage> images;   ///< with capacitors: of pages whose program had not completed
  std::uint64_t in_dram = 0;        ///< pages whose newest version was in DRAM only

  /// Bytes that capacitors have to save: images with page number, stamp and mark, and the trims.
  Bytes saved() const;
};

/// What a recovery found.
struct BlockRecovery {
  std::uint64_t oob_reads = 0;                   ///< pages whose out-of-band metadata was read
  std::uint64_t oob_reads_of_busiest_plane = 0;  ///< times the read latency is the least duration of the scan
  std::uint64_t unreadable_pages = 0;            ///< torn, empty, or handed out and never programmed
  std::uint64_t pages = 0;                       ///< mapped to where they were found
  std::uint64_t stale_pages = 0;                 ///< found, but older than others, or equal to them
  std::uint64_t trimmed_pages = 0;               ///< found, but trimmed later
  std::uint64_t saved_pages = 0;                 ///< written again from the dump
  std::uint64_t map_pages_written = 0;           ///< translation pages that were missing or out of date
  std::uint64_t unwritten_pages = 0;  ///< pages of the dump that stay in DRAM because the drive has become read-only

  /// First the erases of blocks that hold nothing, then the writes of pages that came from the dump. With a cached map,
  /// all translation pages are read then, and those that are out of date are written.
  IoPlan plan;
};

BlockDump save_block(const BlockParts& parts, const PowerCut& cut);
/// Appends the writes to `writes`; the erases are in the result's plan.
BlockRecovery recover_block(BlockParts& parts, const BlockDump& dump, PlanBuilder& writes);

}  // namespace csdsim::ftl
