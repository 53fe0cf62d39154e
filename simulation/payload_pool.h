// Memory manager of TLM payloads that carry one extension each.
#pragma once

#include <cstddef>
#include <memory>
#include <tlm>
#include <vector>

namespace csdsim {

/// Payload and extension are reused together. Must outlive its payloads.
template <class Extension>
class PayloadPool : public tlm::tlm_mm_interface {
 public:
  void free(tlm::tlm_generic_payload* payload) override { free_.push_back(payload); }

  /// Payloads handed out and not given back.
  std::size_t in_use() const { return all_.size() - free_.size(); }

 protected:
  /// A payload with reference count 1, without command and response, and its extension as the last user left it;
  /// `release()` gives it back.
  tlm::tlm_generic_payload& take() {
    if (free_.empty()) {
      all_.push_back(std::make_unique<tlm::tlm_generic_payload>(this));
      all_.back()->set_extension(new Extension);  // owned by the payload from here on
      free_.push_back(all_.back().get());
    }
    tlm::tlm_generic_payload& payload = *free_.back();
    free_.pop_back();
    payload.acquire();
    payload.set_command(tlm::TLM_IGNORE_COMMAND);
    payload.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
    return payload;
  }

 private:
  std::vector<std::unique_ptr<tlm::tlm_generic_payload>> all_;
  std::vector<tlm::tlm_generic_payload*> free_;
};

}  // namespace csdsim
