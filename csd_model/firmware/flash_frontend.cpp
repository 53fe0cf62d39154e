#include "csd_model/firmware/flash_frontend.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "nfc/sysc/flash_payload.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::csd_model {

FlashMux::FlashMux(const sc_core::sc_module_name& name, DriveActivity& activity, FirmwareCores& core,
                   SimTime lookup_time, std::function<std::uint64_t()> lookups, DramPort& dram)
    : sc_module(name),
      activity_(activity),
      core_(core),
      lookup_time_(lookup_time),
      lookups_(std::move(lookups)),
      dram_(dram) {
  upstream.register_nb_transport_fw(this, &FlashMux::forward);
  flash.register_nb_transport_bw(this, &FlashMux::backward);
}

tlm::tlm_sync_enum FlashMux::forward(int initiator, tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                     sc_core::sc_time& delay) {
  if (phase != tlm::BEGIN_REQ) return flash->nb_transport_fw(payload, phase, delay);
  auto* batch = payload.get_extension<nfc::FlashBatch>();
  if (batch != nullptr) batch->route = static_cast<std::uint32_t>(initiator);
  if (initiator == kEngine) {
    hold_.engage();
    activity_.engine_pages(+1, sim_time_now());
    const std::uint64_t lookups = lookups_();
    if (lookup_time_.ps > 0 || dram_.limited()) {
      look_up(payload, lookups);
      phase = tlm::END_REQ;
      return tlm::TLM_UPDATED;
    }
  }
  const tlm::tlm_sync_enum answer = flash->nb_transport_fw(payload, phase, delay);
  if (answer == tlm::TLM_COMPLETED && initiator == kEngine) activity_.engine_pages(-1, sim_time_now());
  return answer;
}

/// The batch goes down when the core is through with it; its operations are the initiator's only during the call.
void FlashMux::look_up(tlm::tlm_generic_payload& payload, std::uint64_t lookups) {
  nfc::FlashBatch& batch = *payload.get_extension<nfc::FlashBatch>();
  const auto ops = std::make_shared<std::vector<PageOp>>(batch.ops.begin(), batch.ops.end());
  const auto submit = [this, &payload, &batch, ops] {
    batch.ops = *ops;
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay;
    if (flash->nb_transport_fw(payload, phase, delay) == tlm::TLM_COMPLETED)
      throw InternalError("the flash refused a batch of the engine");
  };
  core_.run(lookup_time_ * static_cast<std::int64_t>(lookups),
            [this, lookups, submit] { dram_.move(DramTraffic::map, DramPort::kEntryBurst * lookups, submit); });
}

tlm::tlm_sync_enum FlashMux::backward(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                      sc_core::sc_time& delay) {
  const auto initiator = static_cast<int>(payload.get_extension<nfc::FlashBatch>()->route);
  if (phase == tlm::BEGIN_RESP && initiator == kEngine) activity_.engine_pages(-1, sim_time_now());
  return upstream[initiator]->nb_transport_bw(payload, phase, delay);
}

}  // namespace csdsim::csd_model
