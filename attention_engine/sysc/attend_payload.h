// How attention commands reach an engine over TLM-2.0. Whoever writes an engine of their own speaks this protocol:
//
// - A target socket takes generic payloads that carry an AttendExtension (the payload's own fields are not used).
//   nb_transport_fw(BEGIN_REQ) with no annotated delay submits a command. The engine returns TLM_UPDATED with END_REQ:
//   it is taken at once, any number may be outstanding. Or it returns TLM_COMPLETED with TLM_GENERIC_ERROR_RESPONSE and
//   AttendExtension::error: nothing was taken. It takes a reference on a payload that has a memory manager.
// - When the last job of the command is done, and its results stand where the jobs point to, the engine calls
//   nb_transport_bw(BEGIN_RESP) with TLM_OK_RESPONSE and no delay. Commands may complete out of order. The initiator
//   returns TLM_COMPLETED (or TLM_UPDATED with END_RESP); if it returns TLM_ACCEPTED, the engine holds back further
//   responses until nb_transport_fw(END_RESP).
// - An initiator socket reads flash pages with the protocol of nfc/sysc/flash_payload.h. Keys and values themselves
// come
//   from a KvSource, which also says which pages hold them: a page's bytes may be used from its BEGIN_RESP on.
//
// The command's sequences are pinned, and their heads not appended to, from BEGIN_REQ until BEGIN_RESP: that is the
// initiator's duty.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <tlm>
#include <vector>

#include "attention_engine/core/head_job.h"

namespace csdsim::engine {

struct AttendExtension : tlm::tlm_extension<AttendExtension> {
  std::span<const HeadJob> jobs;  ///< at least one; they and their buffers stay until BEGIN_RESP
  std::string error;              ///< set by the engine with an error response: what is wrong, in the user's words
  std::uint64_t tag = 0;          ///< the initiator's own

  tlm::tlm_extension_base* clone() const override { return new AttendExtension(*this); }
  void copy_from(const tlm::tlm_extension_base& other) override { *this = static_cast<const AttendExtension&>(other); }
};

/// Memory manager of attend payloads: payload and extension are reused together. Must outlive its payloads.
class AttendPayloadPool : public tlm::tlm_mm_interface {
 public:
  /// A payload with reference count 1 that carries `jobs`; `release()` gives it back.
  tlm::tlm_generic_payload& allocate(std::span<const HeadJob> jobs, std::uint64_t tag = 0) {
    if (free_.empty()) {
      all_.push_back(std::make_unique<tlm::tlm_generic_payload>(this));
      all_.back()->set_extension(new AttendExtension);  // owned by the payload from here on
      free_.push_back(all_.back().get());
    }
    tlm::tlm_generic_payload& payload = *free_.back();
    free_.pop_back();
    payload.acquire();
    payload.set_command(tlm::TLM_IGNORE_COMMAND);
    payload.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
    auto& extension = *payload.get_extension<AttendExtension>();
    extension.jobs = jobs;
    extension.error.clear();
    extension.tag = tag;
    return payload;
  }

  void free(tlm::tlm_generic_payload* payload) override { free_.push_back(payload); }

  /// Payloads handed out and not given back.
  std::size_t in_use() const { return all_.size() - free_.size(); }

 private:
  std::vector<std::unique_ptr<tlm::tlm_generic_payload>> all_;
  std::vector<tlm::tlm_generic_payload*> free_;
};

}  // namespace csdsim::engine
