#include "ftl/kv/kv_ftl_stats.h"

#include "base/error.h"
#include "base/statistics.h"

namespace csdsim::ftl {

KvFtlStats& KvFtlStats::operator+=(const KvFtlStats& other) {
  MaintenanceStats::operator+=(other);
  add_counters(*this, other, kKvCounters);
  return *this;
}

const CounterInfo& kv_counter(std::uint64_t KvFtlStats::*value) {
  if (const CounterInfo* const own = find_counter(value, kKvCounters)) return *own;
  if (const CounterInfo* const maintenance = find_counter(value, kMaintenanceCounters)) return *maintenance;
  throw InternalError("a counter of a KV namespace that no table has");
}

void register_statistics(Statistics& statistics, const KvFtlStats& stats) {
  statistics.counters(stats, kKvCounters);
  register_statistics(statistics, static_cast<const MaintenanceStats&>(stats));
}

}  // namespace csdsim::ftl
