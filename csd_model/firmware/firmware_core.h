// The processor that runs the firmware: work on it is serial.
#pragma once

#include <cstdint>
#include <systemc>

#include "base/callback.h"
#include "base/ring_queue.h"
#include "base/units.h"
#include "simulation/event_loop.h"

namespace csd_model {

/// One embedded core, first come first served. Work that costs nothing is done at once, in the caller.
class FirmwareCore : public sc_core::sc_module {
 public:
  using Work = csdsim::Callback<void()>;

  explicit FirmwareCore(const sc_core::sc_module_name& name);

  /// Runs `work` when the core has spent `duration` on it, after everything that was asked before.
  void run(csdsim::SimTime duration, Work work);

  /// Nothing is being worked on: work that costs nothing may be done without asking.
  bool idle() const { return queue_.empty(); }

  csdsim::SimTime busy() const { return busy_; }

 private:
  struct Item {
    csdsim::SimTime due;
    Work work;
  };
  void on_due();

  csdsim::RingQueue<Item> queue_;
  csdsim::SimTime free_at_;
  csdsim::SimTime busy_;
  csdsim::Alarm due_{csdsim::AlarmRank::firmware, [this] { on_due(); }};
};

}  // namespace csd_model
