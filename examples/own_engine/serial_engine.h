// An attention engine for the drive: one head after the other, at a fixed time per token. It has two sockets, whose
// protocols are described in attention_engine/sysc/attend_payload.h (commands come in) and nfc/sysc/flash_payload.h
// (page reads go out).
#pragma once

#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <systemc>
#include <tlm>
#include <vector>

#include "attention_engine/core/kv_source.h"
#include "attention_engine/sysc/attend_payload.h"
#include "base/fp16.h"
#include "nfc/sysc/flash_payload.h"

class SerialEngine : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<SerialEngine> attend{"attend"};
  tlm_utils::simple_initiator_socket<SerialEngine> flash{"flash"};

  /// `kv` says which pages hold a head's keys and values, and what they hold.
  SerialEngine(const sc_core::sc_module_name& name, csdsim::engine::KvSource& kv, const sc_core::sc_time& per_token)
      : sc_module(name), kv_(kv), per_token_(per_token) {
    attend.register_nb_transport_fw(this, &SerialEngine::attend_fw);
    flash.register_nb_transport_bw(this, &SerialEngine::flash_bw);
    SC_THREAD(run);
  }

 private:
  SC_HAS_PROCESS(SerialEngine);

  /// BEGIN_REQ brings a command: a list of head jobs. This function must not wait; run() does the work.
  tlm::tlm_sync_enum attend_fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time&) {
    if (phase != tlm::BEGIN_REQ) throw std::logic_error("the drive ends a response in the call that brings it");
    auto& command = *payload.get_extension<csdsim::engine::AttendExtension>();
    for (const csdsim::engine::HeadJob& job : command.jobs)
      if (job.method != csdsim::engine::Method::dense) {
        command.error = "this engine does dense attention only";  // the host gets kv_bad_parameters
        payload.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
        return tlm::TLM_COMPLETED;
      }
    payload.acquire();
    commands_.push_back(&payload);
    command_event_.notify(sc_core::SC_ZERO_TIME);
    phase = tlm::END_REQ;
    return tlm::TLM_UPDATED;
  }

  /// BEGIN_RESP says that all pages of a batch have crossed their channels.
  tlm::tlm_sync_enum flash_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time&) {
    if (phase != tlm::BEGIN_RESP) return tlm::TLM_ACCEPTED;
    payload.release();
    pages_event_.notify(sc_core::SC_ZERO_TIME);
    return tlm::TLM_COMPLETED;
  }

  void run() {
    for (;;) {
      while (commands_.empty()) wait(command_event_);
      tlm::tlm_generic_payload& payload = *commands_.front();
      commands_.pop_front();
      for (const csdsim::engine::HeadJob& job : payload.get_extension<csdsim::engine::AttendExtension>()->jobs)
        attend_head(job);
      payload.set_response_status(tlm::TLM_OK_RESPONSE);
      tlm::tlm_phase phase = tlm::BEGIN_RESP;
      sc_core::sc_time delay;
      attend->nb_transport_bw(payload, phase, delay);
      payload.release();
    }
  }

  void attend_head(const csdsim::engine::HeadJob& job) {
    const csdsim::engine::KvHeadView head = kv_.view(job.key);
    read_pages(job.key, head);
    wait(per_token_ * head.tokens);
    if (job.q == nullptr) return;  // DriveConfig::data is timing: there is nothing to compute with

    // Online softmax: one pass over the tokens, with the largest logit so far taken out of the sums.
    const std::uint32_t d = head.head_dim;
    for (std::uint32_t g = 0; g < job.group; ++g) {
      float largest = -std::numeric_limits<float>::infinity(), sum = 0;
      std::vector<float> out(d);
      for (std::uint32_t token = 0; token < head.tokens; ++token) {
        const csdsim::Half* k = row(job.key, csdsim::KvKind::key, head, token);
        const csdsim::Half* v = row(job.key, csdsim::KvKind::value, head, token);
        float logit = 0;
        for (std::uint32_t i = 0; i < d; ++i)
          logit += csdsim::half_to_float(job.q[g * d + i]) * csdsim::half_to_float(k[i]);
        logit /= std::sqrt(static_cast<float>(d));
        const float old = std::exp(largest - std::max(largest, logit));
        largest = std::max(largest, logit);
        const float weight = std::exp(logit - largest);
        sum = sum * old + weight;
        for (std::uint32_t i = 0; i < d; ++i) out[i] = out[i] * old + weight * csdsim::half_to_float(v[i]);
      }
      for (std::uint32_t i = 0; i < d; ++i) job.out[g * d + i] = csdsim::float_to_half(out[i] / sum);
      if (job.softmax == nullptr) continue;  // only a host that merges the output with other tokens' asks for them
      job.softmax[2 * g] = largest;
      job.softmax[2 * g + 1] = sum;
    }
  }

  /// Reads the pages of all tokens. Groups that are still in the drive's DRAM, like the unfinished one, cost no read.
  void read_pages(csdsim::HeadKey key, const csdsim::engine::KvHeadView& head) {
    std::vector<std::uint32_t> groups(head.flushed_groups());
    std::iota(groups.begin(), groups.end(), 0u);
    csdsim::ReadPlan plan;
    kv_.plan_token_groups(key, csdsim::KvRows::both, groups, {}, plan);
    if (plan.empty()) return;
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay;
    tlm::tlm_generic_payload& batch = flash_payloads_.allocate(plan.ops, 0, plan.lookups);
    if (flash->nb_transport_fw(batch, phase, delay) == tlm::TLM_COMPLETED)
      throw std::runtime_error("the flash refused a batch");
    wait(pages_event_);
  }

  const csdsim::Half* row(csdsim::HeadKey key, csdsim::KvKind kind, const csdsim::engine::KvHeadView& head,
                          std::uint32_t token) const {
    const std::uint32_t n = head.tokens_per_page;
    return kv_.token_rows(key, kind, token / n) + std::size_t{token % n} * head.head_dim;
  }

  csdsim::engine::KvSource& kv_;
  sc_core::sc_time per_token_;
  std::deque<tlm::tlm_generic_payload*> commands_;
  sc_core::sc_event command_event_, pages_event_;
  csdsim::nfc::FlashPayloadPool flash_payloads_;
};
