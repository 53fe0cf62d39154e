// Doorbell writes without TLM, for a driver whose socket is bound directly to our controller.
#pragma once

#include <cstdint>
#include <systemc>

#include "nvme_if/spec/types.h"

namespace csdsim::nvme {

/// The controller registers this interface with the event loop (EventLoop::declare). Both functions write the doorbell
/// register of the queue at the current time, as a write through the socket does.
class DoorbellPort : public virtual sc_core::sc_interface {
 public:
  virtual void ring_submission_queue(QueueId queue, std::uint32_t tail) = 0;
  /// The same, but only as the last statement of the caller: the entries may be fetched before the call returns.
  virtual void ring_submission_queue_last(QueueId queue, std::uint32_t tail) = 0;
  virtual void ring_completion_queue(QueueId queue, std::uint32_t head) = 0;
};

}  // namespace csdsim::nvme
