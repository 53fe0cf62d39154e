// A flash die, event-driven.
#pragma once

#include <memory>
#include <systemc>
#include <vector>

#include "nfc/core/flash_timing.h"
#include "nfc/sysc/at_interfaces.h"
#include "nfc/sysc/at_unit.h"

namespace csdsim::nfc {

/// The units of a die (its planes, all of them together, or both) and the ports that connect them.
class AtDie : public sc_core::sc_module {
 public:
  sc_core::sc_port<BusIf> bus{"bus"};
  sc_core::sc_port<DecoderIf> decoder{"decoder"};
  sc_core::sc_port<OpDoneIf> done{"done"};

  /// `first_plane` is the drive-wide number of its plane 0.
  AtDie(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing,
        PlaneId first_plane);

  /// `plane` counts within the die.
  void submit(std::uint32_t plane, const AtOp& op);
  void trace(sc_core::sc_trace_file* file) const override;

 private:
  std::vector<AtPlane> planes_;
  std::vector<std::unique_ptr<AtUnit>> units_;  ///< by plane, or one; that of a die whose planes read is the last
};

}  // namespace csdsim::nfc
