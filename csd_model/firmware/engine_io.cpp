#include "csd_model/firmware/engine_io.h"

#include <utility>

#include "nfc/sysc/sim_time.h"

namespace csdsim::csd_model {

EngineIo::EngineIo(const sc_core::sc_module_name& name, DriveActivity& activity)
    : sc_module(name), activity_(activity) {
  socket.register_nb_transport_bw(this, &EngineIo::nb_transport_bw);
}

bool EngineIo::run(std::vector<engine::HeadJob> jobs, Done done) {
  const std::uint32_t tag = tasks_.put({std::move(jobs), std::move(done)});
  return submit<engine::AttendExtension>(pool_.allocate(tasks_[tag].jobs, tag));
}

bool EngineIo::run(const engine::NeuronJob& job, Done done) {
  return submit<engine::FeedForwardExtension>(neuron_pool_.allocate(job, tasks_.put({{}, std::move(done)})));
}

template <class Extension>
bool EngineIo::submit(tlm::tlm_generic_payload& payload) {
  const Extension& extension = *payload.get_extension<Extension>();
  const std::uint64_t tag = extension.tag;
  tlm::tlm_phase phase = tlm::BEGIN_REQ;
  sc_core::sc_time delay;
  activity_.engine_task(+1, sim_time_now());
  in_engine_.insert(&payload);
  if (socket->nb_transport_fw(payload, phase, delay) != tlm::TLM_COMPLETED) return true;
  last_error_ = extension.error;
  finish(payload, tag);
  return false;
}

void EngineIo::forget() {
  for (tlm::tlm_generic_payload* const payload : std::exchange(in_engine_, {})) payload->release();
  tasks_ = {};
}

EngineIo::Task EngineIo::finish(tlm::tlm_generic_payload& payload, std::uint64_t tag) {
  in_engine_.erase(&payload);
  payload.release();
  activity_.engine_task(-1, sim_time_now());
  return tasks_.release(tag);
}

tlm::tlm_sync_enum EngineIo::nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                             sc_core::sc_time&) {
  if (phase != tlm::BEGIN_RESP) return tlm::TLM_ACCEPTED;
  const auto* attend = payload.get_extension<engine::AttendExtension>();
  const std::uint64_t tag =
      attend != nullptr ? attend->tag : payload.get_extension<engine::FeedForwardExtension>()->tag;
  const Task task = finish(payload, tag);
  phase = tlm::END_RESP;
  task.done();
  return tlm::TLM_COMPLETED;
}

}  // namespace csdsim::csd_model
