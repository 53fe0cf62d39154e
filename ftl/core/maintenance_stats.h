// Counters of what an FTL does beside the work that it is asked for: those of both namespaces.
#pragma once

#include <cstdint>
#include <iterator>

#include "base/counter.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::ftl {

/// A page that moves takes a read and a program.
struct MaintenanceStats {
  std::uint64_t gc_pages_moved = 0;
  std::uint64_t refresh_pages_moved = 0;
  std::uint64_t wear_pages_moved = 0;
  std::uint64_t retired_pages_moved = 0;
  std::uint64_t program_failures = 0;
  std::uint64_t erase_failures = 0;
  std::uint64_t read_retries = 0;
  std::uint64_t uncorrectable_reads = 0;

  MaintenanceStats& operator+=(const MaintenanceStats& other);
};

inline constexpr Counter<MaintenanceStats> kMaintenanceCounters[] = {
    {&MaintenanceStats::gc_pages_moved, {"gc_pages_moved", "pages", "Valid pages that garbage collection moved."}},
    {&MaintenanceStats::refresh_pages_moved,
     {"refresh_pages_moved", "pages", "Valid pages that moved because of their age."}},
    {&MaintenanceStats::wear_pages_moved,
     {"wear_pages_moved", "pages", "Valid pages that static wear levelling moved."}},
    {&MaintenanceStats::retired_pages_moved,
     {"retired_pages_moved", "pages", "Valid pages moved out of blocks that failed."}},
    {&MaintenanceStats::program_failures,
     {"program_failures", "programs", "Programs that failed; their blocks were retired."}},
    {&MaintenanceStats::erase_failures, {"erase_failures", "erases", "Erases that failed; their blocks were retired."}},
    {&MaintenanceStats::read_retries, {"read_retries", "reads", "Senses of pages after their first."}},
    {&MaintenanceStats::uncorrectable_reads,
     {"uncorrectable_reads", "reads", "Reads of pages that could not be corrected."}},
};
static_assert(sizeof(MaintenanceStats) == std::size(kMaintenanceCounters) * sizeof(std::uint64_t),
              "the table has every counter");

/// Registers all counters; `stats` must outlive the dump.
void register_statistics(Statistics& statistics, const MaintenanceStats& stats);

}  // namespace csdsim::ftl
