// Work of the drive that is due at known times.
#pragma once

#include <cstdint>
#include <utility>

#include "base/callback.h"
#include "base/slot_pool.h"
#include "base/units.h"
#include "nfc/core/nearly_sorted_queue.h"
#include "simulation/event_loop.h"

namespace csdsim::csd_model {

/// Calls back at given times; callbacks of the same time run in the order of at() calls.
class TimedWork {
 public:
  using Work = Callback<void()>;

  void at(SimTime due, Work work) { at(due, next_++, std::move(work)); }
  /// The same, with an order of the caller's among callbacks of the same time; not together with the other at().
  void at(SimTime due, std::uint64_t order, Work work);
  /// Nothing that is pending is called back any more.
  void forget();
  /// All that is pending is due so much later.
  void postpone(SimTime by);
  /// Nothing is pending, and nothing is being called back.
  bool empty() const { return pending_.empty() && !running_; }

 private:
  struct Due {
    SimTime at;
    std::uint64_t order;
    std::uint32_t slot;  ///< of its work
    constexpr bool before(const Due& o) const { return at != o.at ? at < o.at : order < o.order; }
  };
  void on_due();

  nfc::NearlySortedQueue<Due> pending_;
  SlotPool<Work> work_;
  bool running_ = false;
  std::uint64_t next_ = 0;
  Alarm due_{AlarmRank::firmware, [this] { on_due(); }};
};

}  // namespace csdsim::csd_model
