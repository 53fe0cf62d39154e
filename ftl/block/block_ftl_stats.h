// Counters of the block namespace.
#pragma once

#include <cstdint>

#include "ftl/core/maintenance_stats.h"
#include "ftl/core/write_work.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::ftl {

struct BlockFtlStats : MaintenanceStats {
  std::uint64_t host_pages_read = 0;     ///< page reads for host reads
  std::uint64_t unwritten_reads = 0;     ///< logical pages read as zeros, without flash
  std::uint64_t merge_reads = 0;         ///< page reads to complete a partial write
  std::uint64_t host_pages_written = 0;  ///< programs for host writes
  std::uint64_t host_bytes_written = 0;  ///< by host writes, whether they took a program or not
  std::uint64_t abandoned_pages = 0;     ///< programs for partial writes that failed: the rest could not be corrected
  std::uint64_t padded_pages = 0;        ///< left empty in word lines that a request, a flush or an erase had filled
  std::uint64_t coalesced_pages = 0;     ///< host writes to pages whose program had not begun: without a program
  std::uint64_t gc_erases = 0;
  std::uint64_t closed_blocks = 0;     ///< blocks of placement handles that collection took before they were full
  std::uint64_t background_steps = 0;  ///< steps of garbage collection
  std::uint64_t wear_erases = 0;       ///< erases by static wear levelling
  std::uint64_t refreshed_blocks = 0;  ///< erased because of their age
  std::uint64_t trimmed_pages = 0;
  std::uint64_t map_hits = 0;  ///< entries of host pages found in the cache; 0 without a cache
  std::uint64_t map_misses = 0;
  std::uint64_t map_pages_read = 0;     ///< translation pages
  std::uint64_t map_pages_written = 0;  ///< translation pages written, except those that were moved

  /// All programs.
  WriteWork work() const {
    return {.written = host_pages_written + coalesced_pages,
            .host = host_pages_written + abandoned_pages,
            .collection = gc_pages_moved,
            .maps = map_pages_written,
            .wear_levelling = wear_pages_moved,
            .refresh = refresh_pages_moved,
            .retired_blocks = retired_pages_moved + program_failures,
            .padding = padded_pages};
  }
  double write_amplification() const { return work().amplification(); }
};

/// Registers all counters with unit and meaning; `stats` must outlive the dump.
void register_statistics(Statistics& statistics, const BlockFtlStats& stats);

}  // namespace csdsim::ftl
