// An initiator that sends commands to an engine, and the cache that they use.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <functional>
#include <span>
#include <string>
#include <systemc>
#include <utility>
#include <vector>

#include "attention_engine/core/attention.h"
#include "attention_engine/sysc/attend_payload.h"
#include "memory_kv_source.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::engine::test {

inline constexpr std::uint32_t kDim = 128;
inline constexpr unsigned kSeed = 4711;

inline HeadKey head(std::uint32_t h) { return {SequenceId{1}, LayerId{0}, KvHead{h}}; }

/// Stands for the firmware that executes attention commands in a drive.
class Controller : public sc_core::sc_module {
 public:
  tlm_utils::simple_initiator_socket<Controller> socket{"socket"};
  std::function<void(Controller&)> script;
  std::vector<std::pair<std::uint64_t, std::int64_t>> done;  ///< tag, ps
  /// What to do at BEGIN_RESP.
  std::function<tlm::tlm_sync_enum(tlm::tlm_generic_payload&)> on_response;
  AttendPayloadPool pool;
  std::string error;

  explicit Controller(const sc_core::sc_module_name& name) : sc_module(name) {
    socket.register_nb_transport_bw(this, &Controller::bw);
    SC_THREAD(run);
  }
  SC_HAS_PROCESS(Controller);

  bool submit(std::span<const HeadJob> jobs, std::uint64_t tag, SimTime annotated = {}) {
    auto& payload = pool.allocate(jobs, tag);
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay = to_sc_time(annotated);
    const auto status = socket->nb_transport_fw(payload, phase, delay);
    error = payload.get_extension<AttendExtension>()->error;
    payload.release();
    return status == tlm::TLM_UPDATED && phase == tlm::END_REQ;
  }

 private:
  void run() { script(*this); }
  tlm::tlm_sync_enum bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase&, sc_core::sc_time&) {
    done.emplace_back(payload.get_extension<AttendExtension>()->tag, sim_time_now().ps);
    return on_response ? on_response(payload) : tlm::TLM_COMPLETED;
  }
};

struct Cache {
  explicit Cache(std::uint32_t heads, std::uint32_t tokens) : q(heads * kDim), out(q.size()), jobs(heads) {
    floats_to_halves(random_query(q.size(), kSeed), q);
    for (std::uint32_t h = 0; h < heads; ++h) {
      source.add(head(h), {.tokens = tokens, .head_dim = kDim, .embedding_group = 8}, kSeed + h);
      jobs[h].key = head(h);
      jobs[h].q = q.data() + h * kDim;
      jobs[h].out = out.data() + h * kDim;
    }
  }
  std::vector<Half> expected() const {
    std::vector<Half> all(q.size());
    for (std::size_t h = 0; h < jobs.size(); ++h) {
      std::vector<float> wide(kDim), result(kDim);
      halves_to_floats({jobs[h].q, kDim}, wide);
      DenseAttention().attend(source, jobs[h].key, wide, 1, result);
      floats_to_halves(result, {all.data() + h * kDim, kDim});
    }
    return all;
  }

  MemoryKvSource source;
  std::vector<Half> q, out;
  std::vector<HeadJob> jobs;
};

}  // namespace csdsim::engine::test
