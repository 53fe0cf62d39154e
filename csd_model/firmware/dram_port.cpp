#include "csd_model/firmware/dram_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/statistics.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

DramPort::DramPort(const sc_core::sc_module_name& name, std::optional<Bandwidth> bandwidth, const UnitPool::Make& unit)
    : sc_module(name), bandwidth_(bandwidth) {
  if (limited() && unit) pool_ = std::make_unique<PooledWork>("port", 1, unit, busy_, waited_);
}

/// Counts bytes that take the time that it returns.
SimTime DramPort::count(DramTraffic traffic, Bytes size) {
  const SimTime duration = transfer_time(size, *bandwidth_);
  busy_ += duration;
  bytes_[static_cast<std::size_t>(traffic)] += size;
  return duration;
}

SimTime DramPort::reserve(DramTraffic traffic, Bytes size) {
  const SimTime start = std::max(free_at_, sim_time_now());
  waited_ += start - sim_time_now();
  free_at_ = start + count(traffic, size);
  if (observer_ != nullptr)
    observer_->work(0, kDramTrafficNames[static_cast<std::size_t>(traffic)], start, free_at_, size.value);
  return free_at_;
}

void DramPort::give(DramTraffic traffic, Bytes size, Work then) {
  const SimTime duration = count(traffic, size);
  if (duration.ps == 0 && pool_->idle()) {
    if (then) then();
    return;
  }
  pool_->run(size.value, duration, std::move(then), 1 + static_cast<std::uint32_t>(traffic));
}

void DramPort::move_limited(DramTraffic traffic, Bytes size, Work then) {
  if (pool_ != nullptr) return give(traffic, size, std::move(then));
  const SimTime end = reserve(traffic, size);
  if (end <= sim_time_now() && work_.empty()) return then();
  work_.at(end, std::move(then));
}

void DramPort::forget() {
  if (pool_ != nullptr) throw InternalError("a DRAM port that is a module cannot lose power");
  const SimTime now = sim_time_now();
  busy_ = busy_until(now);
  free_at_ = now;
  work_.forget();
}

void DramPort::register_statistics(Statistics& s) const {
  s.time("busy", busy_, "Time that controller DRAM moved bytes.");
  for (std::size_t t = 0; t < kDramTraffics; ++t)
    s.value(
        fmt::format("{}_bytes", kDramTrafficNames[t]), [this, t] { return static_cast<double>(bytes_[t].value); }, "B",
        "Bytes of this kind through it.",
        static_cast<DramTraffic>(t) == DramTraffic::records ? skip_zero() : StatOptions{});
}

}  // namespace csdsim::csd_model
