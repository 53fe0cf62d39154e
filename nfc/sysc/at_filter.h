// The filter of a channel, event-driven.
#pragma once

#include <deque>
#include <functional>
#include <systemc>

#include "nfc/core/flash_statistics.h"
#include "nfc/core/flash_timing.h"
#include "nfc/sysc/at_interfaces.h"
#include "simulation/unit_pool.h"

namespace csdsim::nfc {

/// A unit behind signals that takes pages first in, first out: the model's, which takes FlashTiming::filter_bandwidth,
/// or a user's. The `amount` of its pins is the data bytes of a page.
class AtFilter : public sc_core::sc_module {
 public:
  using Passed = std::function<void(const AtOp&)>;

  /// `make` makes the unit; null, or parts without a module: the model's. The time of the filter goes to `statistics`,
  /// for `channel`. `passed` is called when a page has passed.
  AtFilter(const sc_core::sc_module_name& name, const FlashTiming& timing, std::uint32_t channel,
           const UnitPool::Make& make, FlashStatistics& statistics, Passed passed);

  /// `observer` is called for each page that passes; may be null.
  void observe(WorkObserver* observer) { observer_ = observer; }

  /// The page of `op` is corrected at the current time.
  void take(const AtOp& op);

  void trace(sc_core::sc_trace_file* file) const override { unit_.trace(file); }

 private:
  void end(const UnitPool::End& end);
  SimTime time_of(const AtOp& op) const;

  Bandwidth bandwidth_;
  std::uint32_t channel_;
  FlashStatistics& statistics_;
  Passed passed_;
  WorkObserver* observer_ = nullptr;
  std::deque<AtOp> pages_;  ///< pages that wait for the filter or pass it, in order
  UnitPool unit_;
};

}  // namespace csdsim::nfc
