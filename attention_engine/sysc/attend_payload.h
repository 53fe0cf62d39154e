// TLM-2.0 protocol of attention commands to an engine, which an engine of your own has to implement.
//
// - A target socket takes generic payloads that carry an AttendExtension (the payload's own fields are not used).
//   nb_transport_fw(BEGIN_REQ) with no annotated delay submits a command. The engine returns TLM_UPDATED with END_REQ:
//   it is taken at once, any number may be outstanding. Or it returns TLM_COMPLETED with TLM_GENERIC_ERROR_RESPONSE and
//   AttendExtension::error: nothing was taken. It takes a reference on a payload that has a memory manager.
// - When the last job of the command is done, and its results stand where the jobs point to, the engine calls
//   nb_transport_bw(BEGIN_RESP) with TLM_OK_RESPONSE and no delay. Commands may complete out of order. The initiator
//   returns TLM_COMPLETED (or TLM_UPDATED with END_RESP); if it returns TLM_ACCEPTED, the engine holds back further
//   responses until nb_transport_fw(END_RESP).
// - An initiator socket reads flash pages with the protocol of nfc/sysc/flash_payload.h. Keys and values
//   themselves come from a KvSource, which also tells which pages hold them: a page's bytes may be used from its
//   BEGIN_RESP on.
//
// The command's sequences are pinned, and their heads not appended to, from BEGIN_REQ until BEGIN_RESP: that is the
// initiator's duty.
#pragma once

#include <span>
#include <string>
#include <tlm>

#include "attention_engine/core/head_job.h"
#include "simulation/payload_pool.h"

namespace csdsim::engine {

struct AttendExtension : tlm::tlm_extension<AttendExtension> {
  std::span<const HeadJob> jobs;  ///< at least one; they and their buffers stay until BEGIN_RESP
  std::string error;              ///< set by the engine with an error response: what is wrong, in the user's words
  std::uint64_t tag = 0;          ///< the initiator's own

  tlm::tlm_extension_base* clone() const override { return new AttendExtension(*this); }
  void copy_from(const tlm::tlm_extension_base& other) override { *this = static_cast<const AttendExtension&>(other); }
};

/// Memory manager of attend payloads. Must outlive its payloads.
class AttendPayloadPool : public PayloadPool<AttendExtension> {
 public:
  /// A payload with reference count 1 that carries `jobs`; `release()` gives it back.
  tlm::tlm_generic_payload& allocate(std::span<const HeadJob> jobs, std::uint64_t tag = 0) {
    tlm::tlm_generic_payload& payload = take();
    auto& extension = *payload.get_extension<AttendExtension>();
    extension.jobs = jobs;
    extension.error.clear();
    extension.tag = tag;
    return payload;
  }
};

}  // namespace csdsim::engine
