// TLM-2.0 protocol of feed-forward commands to an engine. It is that of attend_payload.h, on the same
// sockets; only the extension differs. An engine of your own takes such payloads only if its EngineParts say so.
//
// The engine asks NeuronJob::source for the pages of the records when the job starts. Its batches name the lookups that
// NeuronPages counts (FlashBatch::lookups), in even shares if it reads page by page.
#pragma once

#include <string>
#include <tlm>

#include "attention_engine/core/neuron_job.h"
#include "simulation/payload_pool.h"

namespace csdsim::engine {

struct FeedForwardExtension : tlm::tlm_extension<FeedForwardExtension> {
  const NeuronJob* job = nullptr;  ///< it and its buffers stay until BEGIN_RESP
  std::string error;               ///< set by the engine with an error response: what is wrong, in the user's words
  std::uint64_t tag = 0;           ///< the initiator's own

  tlm::tlm_extension_base* clone() const override { return new FeedForwardExtension(*this); }
  void copy_from(const tlm::tlm_extension_base& other) override {
    *this = static_cast<const FeedForwardExtension&>(other);
  }
};

/// Memory manager of feed-forward payloads. Must outlive its payloads.
class FeedForwardPayloadPool : public PayloadPool<FeedForwardExtension> {
 public:
  /// A payload with reference count 1 that carries `job`; `release()` gives it back.
  tlm::tlm_generic_payload& allocate(const NeuronJob& job, std::uint64_t tag = 0) {
    tlm::tlm_generic_payload& payload = take();
    auto& extension = *payload.get_extension<FeedForwardExtension>();
    extension.job = &job;
    extension.error.clear();
    extension.tag = tag;
    return payload;
  }
};

}  // namespace csdsim::engine
