// Doorbells without TLM, for a driver that is bound straight to a controller of ours.
#pragma once

#include <cstdint>
#include <systemc>

namespace csdsim::nvme {

/// Declared to the event loop as what stands behind the controller's socket.
class RegisterPort : public virtual sc_core::sc_interface {
 public:
  /// A write of 4 bytes to the register at `offset`, now, as over the socket. False: refused.
  virtual bool write_register(std::uint64_t offset, std::uint32_t value) = 0;
};

}  // namespace csdsim::nvme
