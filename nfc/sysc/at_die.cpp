#include "nfc/sysc/at_die.h"

#include <string>

namespace csdsim::nfc {

AtDie::AtDie(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing,
             PlaneId first_plane)
    : sc_module(name), unit_planes_(timing.plane_mode == PlaneMode::multi_plane ? geometry.planes_per_die : 1) {
  for (std::uint32_t p = 0; p < geometry.planes_per_die; p += unit_planes_) {
    const std::string unit_name = unit_planes_ == 1 ? "plane" + std::to_string(p) : "planes";
    units_.push_back(
        std::make_unique<AtUnit>(unit_name.c_str(), geometry, timing, PlaneId{first_plane.value + p}, unit_planes_));
    units_.back()->bus.bind(bus);
    units_.back()->decoder.bind(decoder);
    units_.back()->done.bind(done);
  }
}

void AtDie::submit(std::uint32_t plane, const AtOp& op) {
  units_[plane / unit_planes_]->submit(plane % unit_planes_, op);
}

void AtDie::trace(sc_core::sc_trace_file* file) const {
  for (const auto& unit : units_) unit->trace(file);
}

}  // namespace csdsim::nfc
