#include "ftl/core/maintenance_stats.h"

#include "base/statistics.h"

namespace csdsim::ftl {

MaintenanceStats& MaintenanceStats::operator+=(const MaintenanceStats& other) {
  add_counters(*this, other, kMaintenanceCounters);
  return *this;
}

void register_statistics(Statistics& statistics, const MaintenanceStats& stats) {
  statistics.counters(stats, kMaintenanceCounters);
}

}  // namespace csdsim::ftl
