#include "csd_model/firmware/internal_link.h"

#include <utility>

#include "base/statistics.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

using nvme::LinkDirection;

InternalLink::InternalLink(const sc_core::sc_module_name& name, std::optional<Bandwidth> bandwidth)
    : sc_module(name), bandwidth_(bandwidth) {}

void InternalLink::move_over(LinkDirection direction, Bytes size, Work then) {
  const SimTime passed = pass(direction, size, sim_time_now());
  if (passed <= sim_time_now() && work_.empty()) return then();
  work_.at(passed, std::move(then));
}

void InternalLink::register_statistics(Statistics& s) const {
  const nvme::SharedLinkStats& out = stats(LinkDirection::to_host);
  const nvme::SharedLinkStats& in = stats(LinkDirection::to_drive);
  s.counter("from_controller_bytes", out.bytes, "B", "Bytes from the SSD controller to the switch.");
  s.time("from_controller_busy", out.busy, "Time that this direction was occupied.");
  s.counter("to_controller_bytes", in.bytes, "B", "Bytes from the switch to the SSD controller.");
  s.time("to_controller_busy", in.busy, "Time that this direction was occupied.");
}

}  // namespace csdsim::csd_model
