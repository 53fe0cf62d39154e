// The processor that runs the firmware: work on it is serial.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <systemc>
#include <vector>

#include "base/units.h"

namespace csd_model {

/// One embedded core, first come first served. Work that costs nothing is done at once, in the caller.
class FirmwareCore : public sc_core::sc_module {
 public:
  using Work = std::function<void()>;

  explicit FirmwareCore(const sc_core::sc_module_name& name);
  SC_HAS_PROCESS(FirmwareCore);

  /// Runs `work` when the core has spent `duration` on it, after everything that was asked before.
  void run(csdsim::SimTime duration, Work work);

  csdsim::SimTime busy() const { return busy_; }

 private:
  struct Item {
    csdsim::SimTime due;
    Work work;
  };
  void on_due();

  std::queue<Item> queue_;
  csdsim::SimTime free_at_;
  csdsim::SimTime busy_;
  sc_core::sc_event due_;
};

}  // namespace csd_model
