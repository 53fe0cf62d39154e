// Simulated time as our modules see it, and conversions to and from sc_time.
#pragma once

#include <systemc>

#include "base/error.h"
#include "base/units.h"

namespace csdsim {

/// sc_time counts its resolution, so both directions are exact at 1 ps.
inline SimTime to_sim_time(const sc_core::sc_time& time) { return {static_cast<std::int64_t>(time.value())}; }
/// Precondition: time is not negative.
inline sc_core::sc_time to_sc_time(SimTime time) {
  return sc_core::sc_time::from_value(static_cast<sc_core::sc_time::value_type>(time.ps));
}

namespace detail {
/// Time of the event loop during its calls; null otherwise.
inline const SimTime* loop_now = nullptr;
}  // namespace detail

/// The current time: during calls from the event loop its time, which may be ahead of the kernel
/// (simulation/event_loop.h); otherwise the time of the kernel.
inline SimTime sim_time_now() {
  return detail::loop_now != nullptr ? *detail::loop_now : to_sim_time(sc_core::sc_time_stamp());
}

/// UserError unless the simulation's time resolution is 1 ps. Call it from a module's constructor.
inline void check_time_resolution() {
  if (sc_core::sc_get_time_resolution() != sc_core::sc_time(1, sc_core::SC_PS))
    throw UserError("the time resolution of the simulation must be 1 ps");
}

}  // namespace csdsim
