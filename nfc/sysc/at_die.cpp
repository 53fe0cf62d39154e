#include "nfc/sysc/at_die.h"

#include <span>
#include <string>

namespace csdsim::nfc {

AtDie::AtDie(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing,
             PlaneId first_plane)
    : sc_module(name), planes_(geometry.planes_per_die) {
  const auto add = [&](const std::string& unit_name, std::uint32_t first, std::uint32_t planes, AtUnit::Takes takes) {
    units_.push_back(std::make_unique<AtUnit>(unit_name.c_str(), geometry, timing, PlaneId{first_plane.value + first},
                                              std::span(planes_).subspan(first, planes), takes));
    units_.back()->bus.bind(bus);
    units_.back()->decoder.bind(decoder);
    units_.back()->done.bind(done);
  };
  const bool planes_read = timing.plane_mode == PlaneMode::independent_reads;
  if (timing.plane_mode == PlaneMode::multi_plane) {
    add("planes", 0, geometry.planes_per_die, AtUnit::Takes::all);
    return;
  }
  for (std::uint32_t p = 0; p < geometry.planes_per_die; ++p) {
    add("plane" + std::to_string(p), p, 1, planes_read ? AtUnit::Takes::reads : AtUnit::Takes::all);
  }
  if (!planes_read) return;
  add("die", 0, geometry.planes_per_die, AtUnit::Takes::writes);
  for (std::size_t p = 0; p + 1 < units_.size(); ++p) units_.back()->write_for(*units_[p]);
}

void AtDie::submit(std::uint32_t plane, const AtOp& op) {
  planes_[plane].waiting.push_back(op);
  units_[units_.size() == 1 ? 0 : plane]->submitted(op);
}

void AtDie::trace(sc_core::sc_trace_file* file) const {
  for (const auto& unit : units_) unit->trace(file);
}

}  // namespace csdsim::nfc
