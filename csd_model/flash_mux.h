// Joins the initiators of a drive (firmware, attention engine) on the one socket of its flash.
#pragma once

#include <tlm_utils/multi_passthrough_target_socket.h>
#include <tlm_utils/simple_initiator_socket.h>

#include <systemc>
#include <tlm>
#include <unordered_map>

namespace csd_model {

/// Passes batches down in the order of arrival and responses back to who asked. No timing of its own.
class FlashMux : public sc_core::sc_module {
 public:
  tlm_utils::multi_passthrough_target_socket<FlashMux> upstream{"upstream"};
  tlm_utils::simple_initiator_socket<FlashMux> flash{"flash"};

  explicit FlashMux(const sc_core::sc_module_name& name);

 private:
  tlm::tlm_sync_enum forward(int initiator, tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                             sc_core::sc_time& delay);
  tlm::tlm_sync_enum backward(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);

  std::unordered_map<const tlm::tlm_generic_payload*, int> initiators_;  ///< looked up only
};

}  // namespace csd_model
