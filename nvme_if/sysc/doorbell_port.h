// Doorbells without TLM, for a driver that is bound straight to a controller of ours.
#pragma once

#include <cstdint>
#include <systemc>

#include "nvme_if/spec/types.h"

namespace csdsim::nvme {

/// Declared to the event loop as what stands behind the controller's socket. Both are writes to the doorbell register
/// of the queue, now, as over the socket.
class DoorbellPort : public virtual sc_core::sc_interface {
 public:
  virtual void ring_submission_queue(QueueId queue, std::uint32_t tail) = 0;
  /// The same, as the last thing that the caller does: the entries may be fetched before it returns.
  virtual void ring_submission_queue_last(QueueId queue, std::uint32_t tail) = 0;
  virtual void ring_completion_queue(QueueId queue, std::uint32_t head) = 0;
};

}  // namespace csdsim::nvme
