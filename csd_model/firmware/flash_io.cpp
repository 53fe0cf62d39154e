#include "csd_model/firmware/flash_io.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace csd_model {

FlashIo::FlashIo(const sc_core::sc_module_name& name) : sc_module(name) {
  socket.register_nb_transport_bw(this, &FlashIo::nb_transport_bw);
}

void FlashIo::submit(std::span<const csdsim::PageOp> ops, Done done) {
  if (free_tags_.empty()) {
    free_tags_.push_back(static_cast<std::uint32_t>(callbacks_.size()));
    callbacks_.emplace_back();
  }
  const std::uint32_t tag = free_tags_.back();
  free_tags_.pop_back();
  callbacks_[tag] = std::move(done);
  ++in_flight_;
  if (flash_ != nullptr) return flash_->submit_directly(ops, *this, tag);

  tlm::tlm_generic_payload& payload = pool_.allocate(ops, tag);
  tlm::tlm_phase phase = tlm::BEGIN_REQ;
  sc_core::sc_time delay;
  if (socket->nb_transport_fw(payload, phase, delay) == tlm::TLM_COMPLETED)
    throw csdsim::InternalError(
        fmt::format("flash refused a batch of {} operations: {}", ops.size(), payload.get_response_string()));
}

tlm::tlm_sync_enum FlashIo::nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                            sc_core::sc_time&) {
  if (phase != tlm::BEGIN_RESP) return tlm::TLM_ACCEPTED;
  const std::uint64_t tag = payload.get_extension<csdsim::nfc::FlashBatch>()->tag;
  payload.release();
  flash_done(tag, {});
  phase = tlm::END_RESP;
  return tlm::TLM_COMPLETED;
}

void FlashIo::flash_done(std::uint64_t tag, const csdsim::FlashStages& /*stages*/) {
  const Done done = std::move(callbacks_[tag]);
  free_tags_.push_back(static_cast<std::uint32_t>(tag));
  --in_flight_;
  done();
}

}  // namespace csd_model
