// Counters of what an FTL does beside the work that it is asked for: those of both namespaces.
#pragma once

#include <cstdint>

namespace csdsim {
class Statistics;
}

namespace csdsim::ftl {

/// A page that moves takes a read and a program.
struct MaintenanceStats {
  std::uint64_t gc_pages_moved = 0;       ///< by garbage collection
  std::uint64_t refresh_pages_moved = 0;  ///< because of their age
  std::uint64_t wear_pages_moved = 0;     ///< by static wear levelling
  std::uint64_t retired_pages_moved = 0;  ///< out of blocks that failed
  std::uint64_t program_failures = 0;
  std::uint64_t erase_failures = 0;
  std::uint64_t read_retries = 0;
  std::uint64_t uncorrectable_reads = 0;

  MaintenanceStats& operator+=(const MaintenanceStats& other);
};

/// Registers all counters with unit and meaning; `stats` must outlive the dump.
void register_statistics(Statistics& statistics, const MaintenanceStats& stats);

}  // namespace csdsim::ftl
