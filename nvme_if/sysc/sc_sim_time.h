// Between SimTime and sc_time. Both count picoseconds: check_time_resolution() makes sure of it.
#pragma once

#include <systemc>

#include "base/error.h"
#include "base/units.h"

namespace csdsim::nvme {

inline SimTime sim_now() { return {static_cast<std::int64_t>(sc_core::sc_time_stamp().value())}; }

inline sc_core::sc_time to_sc_time(SimTime t) { return sc_core::sc_time::from_value(static_cast<sc_dt::uint64>(t.ps)); }

/// UserError unless the simulation's time resolution is 1 ps. Call it from a module's constructor.
inline void check_time_resolution() {
  if (sc_core::sc_get_time_resolution() != sc_core::sc_time(1, sc_core::SC_PS))
    throw UserError("the time resolution of the simulation must be 1 ps");
}

}  // namespace csdsim::nvme
