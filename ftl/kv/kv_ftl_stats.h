// Counters of the KV namespace.
#pragma once

#include <cstdint>
#include <iterator>

#include "ftl/core/maintenance_stats.h"
#include "ftl/core/write_work.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::ftl {

struct KvFtlStats : MaintenanceStats {
  std::uint64_t lookups = 0;
  std::uint64_t token_pages_programmed = 0;
  std::uint64_t embedding_pages_programmed = 0;
  std::uint64_t read_back_pages = 0;
  std::uint64_t misplaced_pages = 0;
  std::uint64_t partial_pages_programmed = 0;
  std::uint64_t parked_pages_programmed = 0;
  std::uint64_t erases = 0;
  std::uint64_t reclaim_pages_moved = 0;
  std::uint64_t gc_blocks = 0;
  std::uint64_t reclaimed_blocks = 0;  ///< these and the next two are parts of gc_blocks
  std::uint64_t refreshed_blocks = 0;
  std::uint64_t levelled_blocks = 0;
  std::uint64_t pages_rewritten = 0;
  std::uint64_t rows_dropped = 0;

  /// All programs. What the host wrote are the pages of full groups and windows, and those that it sent again.
  WriteWork work() const {
    const std::uint64_t host =
        token_pages_programmed + embedding_pages_programmed + parked_pages_programmed + pages_rewritten;
    return {.written = host,
            .host = host,
            .collection = gc_pages_moved,
            .wear_levelling = wear_pages_moved,
            .refresh = refresh_pages_moved + reclaim_pages_moved,
            .retired_blocks = retired_pages_moved + program_failures,
            .padding = partial_pages_programmed};
  }
  KvFtlStats& operator+=(const KvFtlStats& other);
};

inline constexpr Counter<KvFtlStats> kKvCounters[] = {
    {&KvFtlStats::lookups, {"lookups", "entries", "Map entries looked up."}, false},
    {&KvFtlStats::token_pages_programmed, {"token_pages_programmed", "pages", "Pages of full token groups."}, false},
    {&KvFtlStats::embedding_pages_programmed,
     {"embedding_pages_programmed", "pages", "Pages of full embedding windows."},
     false},
    {&KvFtlStats::read_back_pages, {"read_back_pages", "pages", "Token pages of K read back to be transposed."}, false},
    {&KvFtlStats::misplaced_pages,
     {"misplaced_pages", "pages", "Pages that did not go where the placement wanted them."},
     false},
    {&KvFtlStats::partial_pages_programmed,
     {"partial_pages_programmed", "pages", "Embedding pages of windows that were not full."}},
    {&KvFtlStats::parked_pages_programmed,
     {"parked_pages_programmed", "pages", "Pages that a recovery after a power loss held in DRAM."}},
    {&KvFtlStats::erases, {"erases", "blocks", "Erases that were begun."}},
    {&KvFtlStats::reclaim_pages_moved,
     {"reclaim_pages_moved", "pages", "Valid pages moved out of blocks read too often."}},
    {&KvFtlStats::gc_blocks, {"gc_blocks", "blocks", "Blocks that were emptied, for any reason."}},
    {&KvFtlStats::reclaimed_blocks,
     {"reclaimed_blocks", "blocks", "Blocks that were emptied because they were read too often."}},
    {&KvFtlStats::refreshed_blocks,
     {"refreshed_blocks", "blocks", "Blocks that were emptied because their pages were old."}},
    {&KvFtlStats::levelled_blocks, {"levelled_blocks", "blocks", "Blocks that static wear levelling emptied."}},
    {&KvFtlStats::pages_rewritten,
     {"pages_rewritten", "pages", "Lost pages whose content the host has written again."}},
    {&KvFtlStats::rows_dropped,
     {"rows_dropped", "rows", "Tokens of lost pages that attention does without, counted for each layer and KV head."}},
};
static_assert(sizeof(KvFtlStats) == sizeof(MaintenanceStats) + std::size(kKvCounters) * sizeof(std::uint64_t),
              "the table has every counter");

/// A counter of either table.
const CounterInfo& kv_counter(std::uint64_t KvFtlStats::*value);

/// Registers all counters; `stats` must outlive the dump.
void register_statistics(Statistics& statistics, const KvFtlStats& stats);

}  // namespace csdsim::ftl
