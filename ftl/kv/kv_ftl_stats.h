// Counters of the KV namespace.
#pragma once

#include <cstdint>

#include "ftl/core/maintenance_stats.h"
#include "ftl/core/write_work.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::ftl {

struct KvFtlStats : MaintenanceStats {
  std::uint64_t lookups = 0;  ///< map entries looked up by the plan_ functions
  std::uint64_t token_pages_programmed = 0;
  std::uint64_t embedding_pages_programmed = 0;  ///< of full windows
  std::uint64_t partial_pages_programmed = 0;    ///< embedding pages of windows that were not full yet
  std::uint64_t parked_pages_programmed = 0;     ///< pages that a recovery held in DRAM
  std::uint64_t read_back_pages = 0;             ///< K token pages read to be transposed
  std::uint64_t misplaced_pages = 0;             ///< pages that did not go to the plane that the policy wanted
  std::uint64_t erases = 0;
  std::uint64_t reclaim_pages_moved = 0;  ///< out of blocks that were read too often, likewise
  std::uint64_t gc_blocks = 0;            ///< blocks that were emptied, for any reason
  std::uint64_t reclaimed_blocks = 0;     ///< of these, after many reads
  std::uint64_t refreshed_blocks = 0;     ///< of these, because of their age
  std::uint64_t levelled_blocks = 0;      ///< of these, by static wear levelling
  std::uint64_t pages_rewritten = 0;      ///< written by rewrite() in place of lost pages
  std::uint64_t rows_dropped = 0;         ///< tokens that drop() took out of attention, counted for each head

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

/// Registers all counters with unit and meaning; `stats` must outlive the dump.
void register_statistics(Statistics& statistics, const KvFtlStats& stats);

}  // namespace csdsim::ftl
