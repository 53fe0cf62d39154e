// The controller's side of the attention engine's socket: commands out, callbacks back.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <systemc>
#include <vector>

#include "attention_engine/core/head_job.h"
#include "attention_engine/sysc/attend_payload.h"
#include "attention_engine/sysc/feed_forward_payload.h"
#include "base/slot_pool.h"
#include "csd_model/drive_activity.h"

namespace csdsim::csd_model {

/// Uses the protocol of attention_engine/sysc/attend_payload.h, which every engine of a drive follows.
class EngineIo : public sc_core::sc_module {
 public:
  using Done = std::function<void()>;

  tlm_utils::simple_initiator_socket<EngineIo> socket{"socket"};

  EngineIo(const sc_core::sc_module_name& name, DriveActivity& activity);

  /// At least one job; buffers that they point to stay until `done`. False when the engine refuses them, with its
  /// reason in `last_error()`; `done` is not called then.
  bool run(std::vector<engine::HeadJob> jobs, Done done);

  /// The same for a feed-forward job, which stays until `done`. Only for engines that take FeedForwardExtension.
  bool run(const engine::NeuronJob& job, Done done);

  /// The power fails: nobody is called back any more. The engine has forgotten its jobs.
  void forget();

  const std::string& last_error() const { return last_error_; }

 private:
  struct Task {
    std::vector<engine::HeadJob> jobs;
    Done done;
  };

  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);
  template <class Extension>
  bool submit(tlm::tlm_generic_payload& payload);
  Task finish(tlm::tlm_generic_payload& payload, std::uint64_t tag);

  DriveActivity& activity_;
  engine::AttendPayloadPool pool_;
  engine::FeedForwardPayloadPool neuron_pool_;
  SlotPool<Task> tasks_;  ///< a slot is the payload's tag
  std::set<tlm::tlm_generic_payload*> in_engine_;
  std::string last_error_;
};

}  // namespace csdsim::csd_model
