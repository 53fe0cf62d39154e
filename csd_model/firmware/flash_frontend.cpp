#include "csd_model/firmware/flash_frontend.h"

#include <utility>
#include <vector>

#include "attention_engine/core/phase_intake.h"
#include "base/error.h"
#include "nfc/sysc/flash_payload.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::csd_model {

FlashFrontend::FlashFrontend(const sc_core::sc_module_name& name, DriveActivity& activity, MapLookups& lookups)
    : sc_module(name), activity_(activity), lookups_(lookups) {
  upstream.register_nb_transport_fw(this, &FlashFrontend::forward);
  flash.register_nb_transport_bw(this, &FlashFrontend::backward);
}

tlm::tlm_sync_enum FlashFrontend::forward(int initiator, tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                          sc_core::sc_time& delay) {
  if (phase == nfc::RELEASE_BUFFERS && initiator == kEngine) activity_.end(DriveStation::page_buffers, sim_time_now());
  if (phase != tlm::BEGIN_REQ) return flash->nb_transport_fw(payload, phase, delay);
  auto* batch = payload.get_extension<nfc::FlashBatch>();
  if (batch == nullptr) return flash->nb_transport_fw(payload, phase, delay);  // which refuses it
  batch->route = static_cast<std::uint32_t>(initiator);
  if (initiator == kEngine) {
    hold_.engage();
    activity_.engine_pages(+1, sim_time_now());
    if (batch->hold) activity_.page_asked(sim_time_now());
    if (!lookups_.are_free()) {
      pass_on_after_lookups(payload);
      phase = tlm::END_REQ;
      return tlm::TLM_UPDATED;
    }
    activity_.begin_reads(batch->ops, sim_time_now());
  }
  const tlm::tlm_sync_enum answer = flash->nb_transport_fw(payload, phase, delay);
  if (answer == tlm::TLM_COMPLETED && initiator == kEngine) {  // refused
    activity_.end_reads({}, sim_time_now());
    activity_.engine_pages(-1, sim_time_now());
  }
  return answer;
}

/// The operations of a batch belong to its initiator and are valid only during the call, so they are copied.
void FlashFrontend::pass_on_after_lookups(tlm::tlm_generic_payload& payload) {
  nfc::FlashBatch& batch = *payload.get_extension<nfc::FlashBatch>();
  std::vector<PageOp> ops(batch.ops.begin(), batch.ops.end());
  lookups_.run(batch.lookups, nullptr, [this, &payload, &batch, ops = std::move(ops)] {
    batch.ops = ops;
    activity_.begin_reads(ops, sim_time_now());
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay;
    if (flash->nb_transport_fw(payload, phase, delay) == tlm::TLM_COMPLETED)
      throw InternalError("the flash refused a batch of the engine");
  });
}

tlm::tlm_sync_enum FlashFrontend::backward(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                           sc_core::sc_time& delay) {
  const nfc::FlashBatch& batch = *payload.get_extension<nfc::FlashBatch>();
  const auto initiator = static_cast<int>(batch.route);
  if (phase == tlm::BEGIN_RESP && initiator == kEngine) {
    if (batch.hold) activity_.page_arrived(batch.stages, sim_time_now());
    activity_.end_reads(batch.stages, sim_time_now());
    activity_.engine_pages(-1, sim_time_now());
  }
  return upstream[initiator]->nb_transport_bw(payload, phase, delay);
}

void FlashFrontend::read(engine::PageRead read, std::span<const PageOp> ops, std::uint64_t lookups, bool hold,
                         engine::PageReader& reader) {
  const std::uint32_t slot = direct_.take();
  Direct& batch = direct_[slot];
  batch.batch = slot;
  batch.missing = 1;
  batch.read = read;
  batch.reader = &reader;
  batch.hold = hold;
  const SimTime now = sim_time_now();
  activity_.engine_pages(+1, now);
  if (hold) activity_.page_asked(now);
  if (lookups_.are_free()) return submit(slot, ops);
  batch.op = ops.front();
  batch.missing = static_cast<std::uint32_t>(ops.size());
  const bool one_each = lookups == ops.size() && lookups_.take_cores_only();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    std::uint32_t page = slot;
    if (i > 0) {
      page = direct_.take();
      direct_[page].batch = slot;
      direct_[page].op = ops[i];
    }
    if (one_each)
      lookups_.find(*this, page);
    else
      lookups_.run(engine::lookups_of_pages(lookups, ops.size(), i, i + 1), nullptr, [this, page] { found(page); });
  }
}

void FlashFrontend::work_due(std::uint64_t slot) {
  lookups_.found();
  found(slot);
}

void FlashFrontend::submit(std::uint32_t slot, std::span<const PageOp> ops) {
  activity_.begin_reads(ops, sim_time_now());
  Direct& page = direct_[slot];
  const bool hold = direct_[page.batch].hold;
  page.ticket = target_->submit_directly(ops, *this, slot, hold);
}

void FlashFrontend::flash_done(std::uint64_t slot, const FlashStages& stages) {
  const std::uint32_t first = direct_[slot].batch;
  if (slot != first) direct_.give_back(slot);
  Direct& batch = direct_[first];
  const SimTime now = sim_time_now();
  if (--batch.missing > 0) return activity_.end_reads(stages, now);
  direct_.give_back(first);
  if (batch.hold) activity_.page_arrived(stages, now);
  activity_.end_reads(stages, now);
  activity_.engine_pages(-1, now);
  batch.reader->pages_read(batch.read, batch.ticket);
}

void FlashFrontend::release(FlashTicket ticket) {
  activity_.end(DriveStation::page_buffers, sim_time_now());
  target_->release_directly(ticket);
}

}  // namespace csdsim::csd_model
