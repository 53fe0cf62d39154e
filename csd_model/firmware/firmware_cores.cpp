#include "csd_model/firmware/firmware_cores.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/statistics.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

FirmwareCores::FirmwareCores(const sc_core::sc_module_name& name, std::uint32_t cores, const UnitPool::Make& units)
    : sc_module(name), free_at_(cores) {
  if (cores == 0) throw UserError("drive: firmware needs at least one core");
  if (units) pool_ = std::make_unique<PooledWork>("cores", cores, units, busy_, waited_);
}

void FirmwareCores::run(SimTime duration, Work work) {
  if (duration.ps == 0 && idle()) {
    work();
    return;
  }
  if (pool_ != nullptr) {
    busy_ += duration;
    return pool_->run(static_cast<std::uint64_t>(duration.ps), duration, std::move(work));
  }
  SimTime& free_at = *std::min_element(free_at_.begin(), free_at_.end());
  const SimTime start = std::max(free_at, sim_time_now());
  waited_ += start - sim_time_now();
  free_at = start + duration;
  busy_ += duration;
  if (observer_ != nullptr)
    observer_->work(static_cast<std::uint32_t>(&free_at - free_at_.data()), "map lookups", start, free_at, 0);
  work_.at(free_at, std::move(work));
}

void FirmwareCores::register_statistics(Statistics& s) const {
  s.time("lookup_busy", busy_, "Time of map lookups and of work for the KV namespace, over all cores.", skip_zero());
}

}  // namespace csdsim::csd_model
