#include "nfc/sysc/flash_target.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "nfc/core/flash_timeline.h"
#include "simulation/sim_time.h"

namespace csdsim::nfc {

FlashTarget::FlashTarget(const sc_core::sc_module_name& name, const FlashGeometry& geometry,
                         std::uint32_t word_line_pages)
    : sc_module(name),
      geometry_(geometry),
      word_line_pages_(word_line_pages),
      responses_due_(AlarmRank::flash, [this] { respond(); }) {
  validate(geometry);
  socket.register_nb_transport_fw(this, &FlashTarget::nb_transport_fw);
}

FlashTarget::~FlashTarget() = default;

void FlashTarget::stand_still_until(SimTime) { throw InternalError("this flash model cannot stand still"); }

void FlashTarget::forget() { throw InternalError("this flash model cannot lose power"); }

void FlashTarget::forget_batches() {
  if (payloads_.in_use() > 0) throw InternalError("power fails while a batch of the flash's socket is in flight");
  withdraw_response();
  in_flight_.clear();
  first_ticket_ = 0;
  completions_.clear();
}

tlm::tlm_sync_enum FlashTarget::nb_transport_fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                                sc_core::sc_time& delay) {
  if (phase == tlm::BEGIN_REQ) return begin_request(payload, phase, sim_time_now() + to_sim_time(delay));
  if (phase == tlm::END_RESP) {
    end_response(payload);
    return tlm::TLM_COMPLETED;
  }
  if (phase == RELEASE_BUFFERS) {
    release(payload.get_extension<FlashBatch>()->ticket);
    return tlm::TLM_ACCEPTED;
  }
  throw InternalError("a flash target takes BEGIN_REQ, END_RESP and RELEASE_BUFFERS only");
}

tlm::tlm_sync_enum FlashTarget::begin_request(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, SimTime at) {
  auto* batch = payload.get_extension<FlashBatch>();
  if (batch == nullptr || batch->ops.empty()) {
    payload.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    return tlm::TLM_COMPLETED;
  }
  if (!std::all_of(batch->ops.begin(), batch->ops.end(),
                   [&](const PageOp& op) { return accepts(geometry_, word_line_pages_, op); })) {
    payload.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
    return tlm::TLM_COMPLETED;
  }
  if (payload.has_mm()) payload.acquire();
  batch->ticket = submit(batch->ops, at, batch->hold, true);
  note_in_flight(*this, payloads_.put(&payload));
  phase = tlm::END_REQ;
  return tlm::TLM_UPDATED;
}

/// A batch that came over the socket is complete.
void FlashTarget::flash_done(std::uint64_t tag, const FlashStages& stages) {
  tlm::tlm_generic_payload* const payload = payloads_.release(tag);
  payload->get_extension<FlashBatch>()->stages = stages;
  responses_.push_back(payload);
  send_responses();
}

void FlashTarget::send_responses() {
  while (responding_ == nullptr && !responses_.empty()) {
    tlm::tlm_generic_payload& payload = *responses_.front();
    responses_.pop_front();
    send(payload);
  }
}

void FlashTarget::send(tlm::tlm_generic_payload& payload) {
  payload.set_response_status(tlm::TLM_OK_RESPONSE);
  responding_ = &payload;
  tlm::tlm_phase phase = tlm::BEGIN_RESP;
  sc_core::sc_time delay;
  const auto status = socket->nb_transport_bw(payload, phase, delay);
  const bool ended = status == tlm::TLM_COMPLETED || (status == tlm::TLM_UPDATED && phase == tlm::END_RESP);
  if (ended && responding_ == &payload) end_response(payload);
}

void FlashTarget::end_response(tlm::tlm_generic_payload& payload) {
  if (responding_ != &payload) throw InternalError("END_RESP for a flash batch that was not responding");
  responding_ = nullptr;
  if (payload.has_mm()) payload.release();
  if (!responses_.empty()) respond_at(sim_time_now());
}

}  // namespace csdsim::nfc
