#include "csd_model/firmware/flash_io.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

FlashIo::FlashIo(const sc_core::sc_module_name& name, DramPort& dram) : sc_module(name), dram_(dram) {
  socket.register_nb_transport_bw(this, &FlashIo::nb_transport_bw);
}

void FlashIo::submit(std::span<const PageOp> ops, Done&& done) { submit(ops, *this, callbacks_.put(std::move(done))); }

void FlashIo::flash_done(std::uint64_t tag, const FlashStages& stages) {
  const Done done = callbacks_.release(tag);
  finish(stages, done);
}

void FlashIo::forget() {
  staged_ = {};
  callbacks_ = {};
  waiting_ = {};
}

/// Batches that program or erase wait for DRAM in their order, even without bytes to move; reads do not wait.
void FlashIo::stage(std::span<const PageOp> ops, nfc::FlashClient& client, std::uint64_t tag) {
  const std::uint64_t index = staged_.take();
  Staged& staged = staged_[index];
  staged.ops.assign(ops.begin(), ops.end());
  staged.client = &client;
  staged.tag = tag;
  staged.read = {};
  staged.since = sim_time_now();
  staged.dram = {};
  Bytes programmed;
  bool only_reads = true;
  for (const PageOp& op : ops) {
    only_reads = only_reads && op.kind == PageOpKind::read;
    if (op.kind == PageOpKind::read) staged.read += Bytes{op.channel_bytes};
    if (op.kind == PageOpKind::program) programmed += Bytes{op.channel_bytes};
  }
  if (only_reads) return send(staged.ops, staged_client_, index);
  dram_.move(DramTraffic::flash_data, programmed, [this, index] {
    staged_[index].dram = sim_time_now() - staged_[index].since;
    send(staged_[index].ops, staged_client_, index);
  });
}

void FlashIo::staged_done(std::uint64_t index, const FlashStages& stages) {
  staged_[index].stages = stages;
  staged_[index].since = sim_time_now();
  const auto arrived = [this, index] {
    const Staged& staged = staged_[index];
    nfc::FlashClient& client = *staged.client;
    const std::uint64_t tag = staged.tag;
    const FlashStages of_flash = staged.stages;
    const SimTime in_dram = staged.dram + (sim_time_now() - staged.since);
    staged_.give_back(index);
    staged_time_ = in_dram;
    client.flash_done(tag, of_flash);
    staged_time_ = {};
  };
  if (staged_[index].read.value == 0) return arrived();
  dram_.move(DramTraffic::flash_data, staged_[index].read, arrived);
}

void FlashIo::send(std::span<const PageOp> ops, nfc::FlashClient& client, std::uint64_t tag) {
  if (flash_ != nullptr) {
    flash_->submit_directly(ops, client, tag);
    return;
  }
  tlm::tlm_generic_payload& payload = pool_.allocate(ops, waiting_.put({&client, tag}));
  tlm::tlm_phase phase = tlm::BEGIN_REQ;
  sc_core::sc_time delay;
  if (socket->nb_transport_fw(payload, phase, delay) == tlm::TLM_COMPLETED)
    throw InternalError(
        fmt::format("flash refused a batch of {} operations: {}", ops.size(), payload.get_response_string()));
}

tlm::tlm_sync_enum FlashIo::nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                            sc_core::sc_time&) {
  if (phase != tlm::BEGIN_RESP) return tlm::TLM_ACCEPTED;
  const auto& batch = *payload.get_extension<nfc::FlashBatch>();
  const FlashStages stages = batch.stages;
  const Waiting waiting = waiting_.release(batch.tag);
  payload.release();
  waiting.client->flash_done(waiting.tag, stages);
  phase = tlm::END_RESP;
  return tlm::TLM_COMPLETED;
}

}  // namespace csdsim::csd_model
