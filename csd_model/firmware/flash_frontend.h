// Joins the initiators of a drive (firmware, attention engine) on the one socket of its flash.
#pragma once

#include <tlm_utils/multi_passthrough_target_socket.h>
#include <tlm_utils/simple_initiator_socket.h>

#include <functional>
#include <systemc>
#include <tlm>

#include "csd_model/drive_activity.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/firmware_cores.h"

namespace csdsim::csd_model {

/// Passes batches down in the order of arrival and responses back to who asked. Bind the firmware first and the engine
/// second: the engine's batches are what `activity` counts, they hold the event loop (an engine is a module of the
/// kernel), and before they go down the firmware core looks their pages
/// up in the map, at `lookup_time` each of the lookups that planning them took (`lookups` says, and starts over).
/// (Services of the firmware charge their own lookups.)
class FlashMux : public sc_core::sc_module {
 public:
  tlm_utils::multi_passthrough_target_socket<FlashMux> upstream{"upstream"};
  tlm_utils::simple_initiator_socket<FlashMux> flash{"flash"};

  FlashMux(const sc_core::sc_module_name& name, DriveActivity& activity, FirmwareCores& core, SimTime lookup_time,
           std::function<std::uint64_t()> lookups, DramPort& dram);

 private:
  tlm::tlm_sync_enum forward(int initiator, tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                             sc_core::sc_time& delay);
  tlm::tlm_sync_enum backward(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);

  static constexpr int kEngine = 1;

  void look_up(tlm::tlm_generic_payload& payload, std::uint64_t lookups);

  DriveActivity& activity_;
  FirmwareCores& core_;
  SimTime lookup_time_;
  std::function<std::uint64_t()> lookups_;
  DramPort& dram_;
  LoopHold hold_;
};

}  // namespace csdsim::csd_model
