// What a drive's attention spends its time on.
#pragma once

#include <array>
#include <cstdint>

#include "base/units.h"

namespace csdsim::csd_model {

/// How a drive's time up to some moment divides; the three add up to that time.
struct ActivitySplit {
  SimTime flash;   ///< the engine waited for pages
  SimTime engine;  ///< it computed, and no page read was in flight
  SimTime other;   ///< no attention task in the engine: link, firmware, or nothing to do

  friend ActivitySplit operator-(const ActivitySplit& a, const ActivitySplit& b) {
    return {a.flash - b.flash, a.engine - b.engine, a.other - b.other};
  }
};

/// Divides time as it passes. While pages are being read, time counts as flash, even if kernels compute meanwhile.
class DriveActivity {
 public:
  void engine_task(int change, SimTime now) {
    settle(now);
    tasks_ += change;
  }
  void engine_pages(int change, SimTime now) {
    settle(now);
    page_batches_ += change;
  }
  ActivitySplit until(SimTime now) {
    settle(now);
    return split_;
  }

 private:
  void settle(SimTime now) {
    SimTime& hand = page_batches_ > 0 ? split_.flash : tasks_ > 0 ? split_.engine : split_.other;
    hand += now - since_;
    since_ = now;
  }

  std::int64_t tasks_ = 0;
  std::int64_t page_batches_ = 0;
  SimTime since_;
  ActivitySplit split_;
};

}  // namespace csdsim::csd_model
