// Conversions between SimTime and sc_time. The context's time resolution must be the default of 1 ps.
#pragma once

#include <systemc>

#include "base/units.h"

namespace csdsim {

/// sc_time counts its resolution, so both directions are exact at 1 ps.
inline SimTime to_sim_time(const sc_core::sc_time& time) { return {static_cast<std::int64_t>(time.value())}; }
/// Precondition: time is not negative.
inline sc_core::sc_time to_sc_time(SimTime time) {
  return sc_core::sc_time::from_value(static_cast<sc_core::sc_time::value_type>(time.ps));
}
inline SimTime sim_time_now() { return to_sim_time(sc_core::sc_time_stamp()); }

}  // namespace csdsim
