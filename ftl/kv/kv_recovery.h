// Power loss: what the drive saves of the KV namespace, and how it recovers (docs/adr/0007-power-loss.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fp16.h"
#include "base/units.h"
#include "contracts/page_op.h"
#include "ftl/core/block_manager.h"
#include "ftl/kv/kv_layout.h"
#include "ftl/kv/kv_types.h"

namespace csdsim::ftl {

/// What a dump takes in the area that the drive keeps for it.
struct KvDumpSize {
  Bytes tables;       ///< sequences, token counts, which map segments they are made of
  Bytes tails;        ///< K and V rows that are in no token page
  Bytes value_means;  ///< fp32
  Bytes images;       ///< token pages of which flash has no complete copy
  Bytes blocks;       ///< erase counts, write positions and states of the blocks
  /// What was in controller DRAM; the firmware writes the records of blocks when these change.
  Bytes saved() const { return tables + tails + value_means + images; }
  Bytes total() const { return tables + tails + value_means + images + blocks; }
};

/// What the capacitors save. It contains no page addresses, because both maps are rebuilt from the flash, and nothing
/// that can be made from token rows again: component-major tails, embedding pages.
struct KvDump {
  /// The pages that one sequence wrote for the heads of a tile between two forks.
  struct MapSegment {
    HeadKey key;               ///< the writer, the first head
    std::uint32_t number = 0;  ///< Sequence::segment of its writer when it was written
    std::uint32_t first_group = 0;
    std::uint32_t end_group = 0;
    std::uint32_t first_position = 0;  ///< KvLayout::embedding_position
    std::uint32_t end_position = 0;
  };
  /// A window that was programmed before it was full: tokens up to `end` are in it.
  struct PartialWindow {
    std::uint32_t window = 0;
    std::uint32_t end = 0;
  };
  struct Head {
    std::uint32_t tokens = 0;
    std::vector<PartialWindow> partials;  ///< versions of the unfinished window, the newest last
    std::vector<Half> key_tail;           ///< [tokens][d]
    std::vector<Half> value_tail;
    std::vector<float> value_mean;  ///< [d]
  };
  /// Numbers of map segments, in order.
  using Tile = std::vector<std::uint32_t>;
  struct Layer {
    std::vector<Head> heads;
    std::vector<Tile> tiles;
  };
  struct Sequence {
    SequenceId id;
    std::uint32_t segment = 0;
    KvShape shape;
    KvLayout layout;
    std::vector<std::optional<Layer>> layers;  ///< empty: nothing was appended
  };
  struct Image {
    std::uint32_t segment = 0;
    std::uint32_t position = 0;  ///< position of the token page, as HeadMap counts
    std::vector<std::byte> bytes;

    Bytes saved() const { return Bytes{sizeof segment + sizeof position + bytes.size()}; }
  };

  std::string policy;
  TailPolicy tail = TailPolicy::token_index;
  std::uint32_t next_segment = 0;
  std::vector<MapSegment> segments;
  std::vector<Sequence> sequences;
  std::vector<Image> images;
  std::vector<BlockRecord> blocks;
  std::vector<PhysicalPageAddress> lost;  ///< pages in flash whose content was lost before it came there

  KvDumpSize size() const;
};

/// What a recovery found, and the operations that it leaves to be run. First run all `reads`. If power fails before
/// they have completed, recover from the same dump again. Then the namespace is ready: `jobs` and `erases` are run as
/// those of appends and frees are (KvFtl::flush_done, KvFtl::erase_done), in any order.
struct RecoveryResult {
  std::uint64_t oob_reads = 0;                   ///< pages whose out-of-band metadata was read
  std::uint64_t oob_reads_of_busiest_plane = 0;  ///< times the read latency is the least duration of the scan
  std::uint64_t unreadable_pages = 0;            ///< torn, or handed out and never programmed
  std::uint64_t pages = 0;                       ///< mapped to where they were found
  std::uint64_t stale_pages = 0;                 ///< found, but of no sequence, or older copies
  std::uint64_t saved_pages = 0;                 ///< token pages that came from the dump
  std::uint64_t rebuilt_pages = 0;               ///< embedding pages to be transposed and programmed again
  std::uint64_t evacuated_pages = 0;             ///< moved into DRAM, because flash had no room to move them to

  /// Token pages that should be there and are not, which no power loss may cause, and the sequences that they belonged
  /// to, which do not exist any more.
  std::vector<KvPageId> lost_pages;
  std::vector<SequenceId> lost_sequences;

  std::vector<PageOp> reads;
  std::vector<FlushJob> jobs;
  std::vector<PageOp> erases;
};

}  // namespace csdsim::ftl
