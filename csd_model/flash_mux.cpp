#include "csd_model/flash_mux.h"

namespace csd_model {

FlashMux::FlashMux(const sc_core::sc_module_name& name) : sc_module(name) {
  upstream.register_nb_transport_fw(this, &FlashMux::forward);
  flash.register_nb_transport_bw(this, &FlashMux::backward);
}

tlm::tlm_sync_enum FlashMux::forward(int initiator, tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                     sc_core::sc_time& delay) {
  if (phase == tlm::BEGIN_REQ) initiators_[&payload] = initiator;
  const tlm::tlm_sync_enum answer = flash->nb_transport_fw(payload, phase, delay);
  if (answer == tlm::TLM_COMPLETED) initiators_.erase(&payload);
  return answer;
}

tlm::tlm_sync_enum FlashMux::backward(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                      sc_core::sc_time& delay) {
  const auto entry = initiators_.find(&payload);
  const int initiator = entry->second;
  // The initiator may reuse the payload for a new batch while it answers: forget it first.
  if (phase == tlm::BEGIN_RESP) initiators_.erase(entry);
  return upstream[initiator]->nb_transport_bw(payload, phase, delay);
}

}  // namespace csd_model
