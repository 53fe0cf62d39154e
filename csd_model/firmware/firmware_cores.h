// The processors that run the firmware.
#pragma once

#include <cstdint>
#include <systemc>
#include <vector>

#include "base/units.h"
#include "csd_model/firmware/timed_work.h"

namespace csdsim::csd_model {

/// Embedded cores that take work in the order in which it is asked for, each one piece at a time. Work that costs
/// nothing is done at once, in the caller, when the cores are idle.
class FirmwareCores : public sc_core::sc_module {
 public:
  using Work = TimedWork::Work;

  /// UserError without a core.
  FirmwareCores(const sc_core::sc_module_name& name, std::uint32_t cores);

  /// Runs `work` when a core has spent `duration` on it: the first that is free.
  void run(SimTime duration, Work work);

  /// Nothing is being worked on: work that costs nothing may be done without asking.
  bool idle() const { return work_.empty(); }

  /// Summed over the cores.
  const SimTime& busy() const { return busy_; }

 private:
  std::vector<SimTime> free_at_;
  SimTime busy_;
  TimedWork work_;
};

}  // namespace csdsim::csd_model
