#include "attention_engine/sysc/attention_engine.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::engine {
namespace {

/// Encodes a read as the tag of its batch.
std::uint64_t to_tag(PageRead read) { return std::uint64_t{read.piece} << 32 | read.job.value; }
PageRead of_tag(std::uint64_t tag) {
  return {JobId{static_cast<std::uint32_t>(tag)}, static_cast<std::uint32_t>(tag >> 32)};
}

}  // namespace

AttentionEngine::AttentionEngine(const sc_core::sc_module_name& name, const EngineConfig& config, KvSource& source,
                                 HeadWork& work, const EngineUnitFactory& units)
    : sc_module(name), scheduler_(config, source, work, *this), held_(config.jobs_in_flight) {
  if (units) {
    units_ =
        std::make_unique<EngineUnits>("units", config, units, [this](const UnitPool::End& end) { unit_done(end); });
    scheduler_.set_units(*units_);
  }
  attend_socket.register_nb_transport_fw(this, &AttentionEngine::attend_fw);
  flash_socket.register_nb_transport_bw(this, &AttentionEngine::flash_bw);
}

tlm::tlm_sync_enum AttentionEngine::attend_fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                              sc_core::sc_time& delay) {
  if (phase == tlm::BEGIN_REQ) return begin_request(payload, phase, delay);
  if (phase == tlm::END_RESP) {
    end_response(payload);
    respond();
    return tlm::TLM_COMPLETED;
  }
  throw InternalError("an attention engine takes BEGIN_REQ and END_RESP only");
}

tlm::tlm_sync_enum AttentionEngine::begin_request(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                                  const sc_core::sc_time& delay) {
  auto* attend = payload.get_extension<AttendExtension>();
  auto* neurons = payload.get_extension<FeedForwardExtension>();
  const auto refuse = [&](const char* why) {
    if (attend != nullptr) attend->error = why;
    if (neurons != nullptr) neurons->error = why;
    payload.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    return tlm::TLM_COMPLETED;
  };
  if (attend == nullptr && neurons == nullptr) return refuse("");
  if (delay != sc_core::SC_ZERO_TIME) return refuse("a command is submitted without annotated delay");
  // The entry of in_flight_ is made first: jobs that need no flash and no time could end within submit().
  in_flight_.push_back(&payload);
  if (payload.has_mm()) payload.acquire();
  try {
    if (attend != nullptr) {
      scheduler_.submit(attend->jobs, sim_time_now());
    } else {
      scheduler_.submit_neurons(*neurons->job, sim_time_now());
    }
  } catch (const UserError& error) {
    in_flight_.pop_back();
    if (payload.has_mm()) payload.release();
    return refuse(error.what());
  }
  settle();
  phase = tlm::END_REQ;
  return tlm::TLM_UPDATED;
}

tlm::tlm_sync_enum AttentionEngine::flash_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                             sc_core::sc_time&) {
  if (phase != tlm::BEGIN_RESP) return tlm::TLM_ACCEPTED;
  if (payload.get_response_status() != tlm::TLM_OK_RESPONSE) throw InternalError("a page read of the engine failed");
  const nfc::FlashBatch& batch = *payload.get_extension<nfc::FlashBatch>();
  const PageRead read = of_tag(batch.tag);
  const FlashTicket ticket = batch.ticket;
  payload.release();
  pages_read(read, ticket);
  return tlm::TLM_COMPLETED;
}

void AttentionEngine::pages_read(PageRead read, FlashTicket ticket) {
  if (config().page_buffers > 0) {
    std::vector<FlashTicket>& held = held_[read.job.value];
    if (read.piece >= held.size()) held.resize(read.piece + 1);
    held[read.piece] = ticket;
  }
  --traced_reads_;
  scheduler_.pages_arrived(read, sim_time_now());
  settle();
  if (!responses_.empty()) respond();
}

void AttentionEngine::on_wake() {
  scheduler_.advance(sim_time_now());
  settle();
  if (!responses_.empty()) respond();
}

/// Several units may end at the same time: on_wake() runs after all of them and continues their jobs.
void AttentionEngine::unit_done(const UnitPool::End& end) {
  scheduler_.unit_done(end.id, end.waited, end.worked, sim_time_now());
  wake_.set(sim_time_now());
}

void AttentionEngine::read_pages(PageRead read, std::span<const PageOp> ops, std::uint64_t lookups, SimTime) {
  const bool hold = config().page_buffers > 0;
  ++traced_reads_;
  if (port_ != nullptr) return port_->read(read, ops, lookups, hold, *this);
  tlm::tlm_generic_payload& payload = flash_payloads_.allocate(ops, to_tag(read), lookups);
  payload.get_extension<nfc::FlashBatch>()->hold = hold;
  tlm::tlm_phase phase = tlm::BEGIN_REQ;
  sc_core::sc_time delay;
  const auto status = flash_socket->nb_transport_fw(payload, phase, delay);
  // The payload returns with its response; a flash that answers within the call has refused it.
  if (status == tlm::TLM_COMPLETED) throw InternalError("the flash refused a page read of the engine");
}

void AttentionEngine::pages_consumed(PageRead read, SimTime) {
  if (config().page_buffers == 0) return;
  const FlashTicket ticket = held_[read.job.value][read.piece];
  if (port_ != nullptr) return port_->release(ticket);
  tlm::tlm_generic_payload& payload = flash_payloads_.allocate({});
  payload.get_extension<nfc::FlashBatch>()->ticket = ticket;
  tlm::tlm_phase phase = nfc::RELEASE_BUFFERS;
  sc_core::sc_time delay;
  flash_socket->nb_transport_fw(payload, phase, delay);
  payload.release();
}

void AttentionEngine::task_done(TaskId id, SimTime) {
  auto& slot = in_flight_[id.value - first_task_];
  responses_.push_back(slot);
  slot = nullptr;
  while (!in_flight_.empty() && in_flight_.front() == nullptr) {
    in_flight_.pop_front();
    ++first_task_;
  }
}

void AttentionEngine::respond() {
  while (responding_ == nullptr && !responses_.empty()) {
    tlm::tlm_generic_payload& payload = *responses_.front();
    responses_.pop_front();
    responding_ = &payload;
    payload.set_response_status(tlm::TLM_OK_RESPONSE);
    tlm::tlm_phase phase = tlm::BEGIN_RESP;
    sc_core::sc_time delay;
    const auto status = attend_socket->nb_transport_bw(payload, phase, delay);
    const bool ended = status == tlm::TLM_COMPLETED || (status == tlm::TLM_UPDATED && phase == tlm::END_RESP);
    if (ended && responding_ == &payload) end_response(payload);
  }
}

void AttentionEngine::forget() {
  wake_.cancel();
  scheduler_.forget(sim_time_now());
  held_.assign(held_.size(), {});
  traced_reads_ = 0;
  if (responding_ != nullptr) responses_.push_back(std::exchange(responding_, nullptr));
  for (const auto& payloads : {std::exchange(in_flight_, {}), std::exchange(responses_, {})})
    for (tlm::tlm_generic_payload* const payload : payloads)
      if (payload != nullptr && payload->has_mm()) payload->release();
  first_task_ = 0;
  settle();
}

void AttentionEngine::trace(sc_core::sc_trace_file* file) const {
  const std::string prefix = std::string(name()) + ".";
  sc_core::sc_trace(file, traced_buffer_, prefix + "buffer_bytes");
  sc_core::sc_trace(file, traced_jobs_, prefix + "jobs");
  sc_core::sc_trace(file, traced_reads_, prefix + "reads");
  if (units_ != nullptr) units_->trace(file);
}

void AttentionEngine::end_response(tlm::tlm_generic_payload& payload) {
  if (responding_ != &payload) throw InternalError("END_RESP for an attention command that was not responding");
  responding_ = nullptr;
  if (payload.has_mm()) payload.release();
}

}  // namespace csdsim::engine
