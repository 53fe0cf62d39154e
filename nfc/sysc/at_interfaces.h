// What crosses between the event-driven flash modules.
#pragma once

#include <cstdint>
#include <systemc>

#include "base/page_op.h"
#include "base/units.h"

namespace csdsim::nfc {

/// A page operation on its way through the event-driven modules.
struct AtOp {
  PageOp op;
  std::uint64_t sequence = 0;  ///< order of submission in the drive
  std::uint64_t ticket = 0;    ///< of its batch
  SimTime not_before;          ///< asks for the bus at this time at the earliest
};

/// What a plane wants the bus for. The values are what a waveform of the bus shows.
enum class BusUse : std::uint8_t { idle = 0, command = 1, program = 2, data_out = 3 };

/// Told when the bus has been granted.
class BusGrantIf {
 public:
  /// The bus carries the request from the current time on, for `duration`.
  virtual void granted(SimTime duration) = 0;

 protected:
  ~BusGrantIf() = default;
};

/// The bus of a channel, as its planes see it.
class BusIf : public virtual sc_core::sc_interface {
 public:
  /// Asks at the current time. One request a plane; `requester` is called back at the grant.
  virtual void request(BusUse use, const AtOp& op, BusGrantIf& requester) = 0;
};

/// Lets the channels decide.
class SettleIf {
 public:
  /// Something changed at the current time: decisions may be due once it has settled.
  virtual void kick() = 0;

 protected:
  ~SettleIf() = default;
};

/// Where operations end.
class OpDoneIf : public virtual sc_core::sc_interface {
 public:
  /// The page register of `plane` is free. `op` occupied it since `granted_at`.
  virtual void plane_free(PlaneId plane, const AtOp& op, SimTime granted_at) = 0;
};

}  // namespace csdsim::nfc
