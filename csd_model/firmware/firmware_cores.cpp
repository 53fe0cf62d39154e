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

void FirmwareCores::stand_still_for(SimTime by) {
  if (pool_ != nullptr) throw InternalError("cores that are modules cannot stand still");
  const SimTime now = sim_time_now();
  go_on();
  if (!left_.empty()) throw InternalError("the cores stand still already");
  work_.postpone(by);
  stands_until_ = now + by;
  for (SimTime& free : free_at_) {
    left_.push_back(std::max(free - now, SimTime{}));
    free = std::min(free, now);
  }
}

/// Once a standstill is over, the cores have its work behind what they were given meanwhile.
void FirmwareCores::go_on() {
  if (left_.empty() || sim_time_now() < stands_until_) return;
  for (std::size_t core = 0; core < left_.size(); ++core) {
    const SimTime from = left_[core].ps > 0 ? std::max(free_at_[core], stands_until_) : free_at_[core];
    free_at_[core] = from + left_[core];
  }
  left_.clear();
}

void FirmwareCores::run(SimTime duration, Work work) {
  if (duration.ps == 0 && idle()) {
    work();
    return;
  }
  if (pool_ == nullptr) return work_.at(take(duration), std::move(work));
  busy_ += duration;
  pool_->run(static_cast<std::uint64_t>(duration.ps), duration, std::move(work));
}

void FirmwareCores::forget() {
  if (pool_ != nullptr) throw InternalError("cores that are modules cannot lose power");
  const SimTime now = sim_time_now();
  busy_ = busy_until(now);
  std::ranges::fill(free_at_, now);
  left_.clear();
  work_.forget();
}

void FirmwareCores::register_statistics(Statistics& s) const {
  s.time("lookup_busy", busy_, "Time of map lookups and of work for the KV namespace, over all cores.", skip_zero());
}

}  // namespace csdsim::csd_model
