// The interrupt line of the controller.
#pragma once

#include <systemc>

#include "nvme_if/spec/types.h"

namespace csdsim::nvme {

/// Receives message-signalled interrupts.
class InterruptIf : public sc_core::sc_interface {
 public:
  /// A completion has been written to a queue of `vector`. Called from an SC_METHOD: must not wait.
  virtual void raise(InterruptVector vector) = 0;
  /// The same, but only as the last statement of the caller: the receiver may react before the call returns.
  virtual void raise_last(InterruptVector vector) { raise(vector); }
  /// Whether the event loop (simulation/event_loop.h) may be ahead of the kernel during raise().
  virtual bool runs_ahead() const { return false; }
};

}  // namespace csdsim::nvme
