// Interfaces between the event-driven flash modules.
#pragma once

#include <cstdint>
#include <systemc>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "contracts/page_op.h"
#include "nfc/core/flash_observers.h"
#include "nfc/core/flash_statistics.h"
#include "nfc/core/flash_timing.h"

namespace csdsim::nfc {

/// A page operation on its way through the event-driven modules.
struct AtOp {
  PageOp op;
  std::uint64_t sequence = 0;  ///< order of submission in the drive
  std::uint64_t ticket = 0;    ///< ticket of its batch
  SimTime not_before;          ///< asks for the bus at this time at the earliest
  std::uint8_t rank = 0;       ///< urgency of its class, 0 the most urgent
  std::uint32_t attempt = 0;   ///< number of the attempt at a read, from 0
  SimTime since{};             ///< the time before it is charged to a stage already
  FlashStages stages{};

  bool hold = false;         ///< keeps its page buffer until its batch is released
  bool in_register = false;  ///< a read whose page is in the page register of its plane

  bool fails() const { return op.kind == PageOpKind::read && attempt < op.retries; }
  void account(FlashStage stage, SimTime now) {
    stages[static_cast<std::size_t>(stage)] += now - since;
    since = now;
  }
};

/// How long the array works on an operation, its present attempt, without suspensions.
inline SimTime array_time(const FlashTiming& timing, const FlashGeometry& geometry, const AtOp& op) {
  const std::uint32_t page = geometry.page_in_block(op.op.ppa);
  switch (op.op.kind) {
    case PageOpKind::read:
      return op.in_register ? SimTime{} : read_time(timing, page, op.attempt, op.sequence);
    case PageOpKind::program:
      return program_time(timing, page);
    case PageOpKind::erase:
      return timing.erase_latency;
  }
  throw InternalError("unknown kind of page operation");
}

/// What the bus is used for. A waveform of the bus shows these values, 0 when it is idle.
enum class BusUse : std::uint8_t { idle = 0, command = 1, data_out = 2, status = 3, suspend = 4, resume = 5 };

/// A request for the bus that is not granted yet.
struct Wish {
  BusUse use = BusUse::idle;
  std::uint32_t plane = 0;  ///< within the unit, of a command or data-out
  std::uint64_t sequence = 0;
  std::uint8_t rank = 0;
  SimTime asked_at{};
};

/// A client of the bus of a channel. All calls come when nothing else happens at the current time.
class BusClientIf {
 public:
  /// Renews its requests.
  virtual void update(SimTime now) = 0;
  virtual const std::vector<Wish>& wishes() const = 0;
  virtual std::uint32_t package() const = 0;
  /// Grants the bus from `now` on, first for `select`. Returns for how long the client then uses it.
  virtual ChannelBusy granted(Wish wish, SimTime now, SimTime select) = 0;

 protected:
  ~BusClientIf() = default;
};

/// The bus of a channel, as its clients see it.
class BusIf : public virtual sc_core::sc_interface {
 public:
  virtual void attach(BusClientIf& client) = 0;
  /// Something happened at the current time that may change a client's requests.
  virtual void changed() = 0;
};

/// Told that the attempt of `op` has been decoded.
class DecodedIf {
 public:
  virtual void decoded(std::uint32_t plane, const AtOp& op) = 0;

 protected:
  ~DecodedIf() = default;
};

/// The decoder of a channel.
class DecoderIf : public virtual sc_core::sc_interface {
 public:
  /// The page of `op` has arrived at the current time.
  virtual void decode(std::uint32_t plane, const AtOp& op, DecodedIf& owner) = 0;
};

/// Lets the channels decide.
class SettleIf {
 public:
  /// Something changed at the current time: decisions may be due when nothing else happens at it.
  virtual void kick() = 0;

 protected:
  ~SettleIf() = default;
};

/// Accounts for operations and is told when they end.
class OpDoneIf : public virtual sc_core::sc_interface {
 public:
  /// An attempt of `op` got its last bus grant: for its data-out or, for programs and erases, its command.
  virtual void last_granted(const AtOp& op) = 0;
  /// `op` is done at the current time.
  virtual void op_done(const AtOp& op) = 0;
  /// `plane` became empty at the current time. It had had operations since `occupied_since`.
  virtual void plane_free(PlaneId plane, SimTime occupied_since) = 0;
  /// An attempt of `op` was decoded and failed.
  virtual void retried(const AtOp& op) = 0;
  virtual void suspended() = 0;
  virtual void joined() = 0;
  /// The observers of the units.
  virtual const FlashObservers& observers() const = 0;
};

}  // namespace csdsim::nfc
