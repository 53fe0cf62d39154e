#include "csd_model/firmware/dram_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/statistics.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

DramPort::DramPort(const sc_core::sc_module_name& name, std::optional<Bandwidth> bandwidth)
    : sc_module(name), bandwidth_(bandwidth) {}

SimTime DramPort::reserve(DramTraffic traffic, Bytes size) {
  if (!limited()) return sim_time_now();
  const SimTime duration = transfer_time(size, *bandwidth_);
  const SimTime start = std::max(free_at_, sim_time_now());
  waited_ += start - sim_time_now();
  free_at_ = start + duration;
  busy_ += duration;
  bytes_[static_cast<std::size_t>(traffic)] += size;
  if (observer_ != nullptr)
    observer_->work(0, kDramTrafficNames[static_cast<std::size_t>(traffic)], start, free_at_, size.value);
  return free_at_;
}

void DramPort::move(DramTraffic traffic, Bytes size, Work then) {
  const SimTime end = reserve(traffic, size);
  if (end <= sim_time_now() && work_.empty()) return then();
  work_.at(end, std::move(then));
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
