#include "ftl/core/maintenance_stats.h"

#include <iterator>
#include <string_view>

#include "base/statistics.h"

namespace csdsim::ftl {

namespace {

struct MaintenanceCounter {
  std::uint64_t MaintenanceStats::*value;
  std::string_view name, unit, doc;
};
constexpr MaintenanceCounter kMaintenance[] = {
    {&MaintenanceStats::gc_pages_moved, "gc_pages_moved", "pages", "Valid pages that garbage collection moved."},
    {&MaintenanceStats::refresh_pages_moved, "refresh_pages_moved", "pages",
     "Valid pages that moved because of their age."},
    {&MaintenanceStats::wear_pages_moved, "wear_pages_moved", "pages", "Valid pages that static wear levelling moved."},
    {&MaintenanceStats::retired_pages_moved, "retired_pages_moved", "pages",
     "Valid pages moved out of blocks that failed."},
    {&MaintenanceStats::program_failures, "program_failures", "programs",
     "Programs that failed; their blocks were retired."},
    {&MaintenanceStats::erase_failures, "erase_failures", "erases", "Erases that failed; their blocks were retired."},
    {&MaintenanceStats::read_retries, "read_retries", "reads", "Senses of pages after their first."},
    {&MaintenanceStats::uncorrectable_reads, "uncorrectable_reads", "reads",
     "Reads of pages that could not be corrected."},
};
static_assert(sizeof(MaintenanceStats) == std::size(kMaintenance) * sizeof(std::uint64_t),
              "the table has every counter");

}  // namespace

MaintenanceStats& MaintenanceStats::operator+=(const MaintenanceStats& other) {
  for (const MaintenanceCounter& counter : kMaintenance) this->*counter.value += other.*counter.value;
  return *this;
}

void register_statistics(Statistics& statistics, const MaintenanceStats& stats) {
  for (const MaintenanceCounter& c : kMaintenance)
    statistics.counter(c.name, stats.*c.value, c.unit, c.doc, skip_zero());
}

}  // namespace csdsim::ftl
