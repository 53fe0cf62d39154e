// Work of the drive that is due at known times.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/callback.h"
#include "base/units.h"
#include "simulation/event_loop.h"

namespace csdsim::csd_model {

/// Calls back at given times; callbacks of the same time run in the order of at() calls.
class TimedWork {
 public:
  using Work = Callback<void()>;

  void at(SimTime due, Work work) { at(due, next_++, std::move(work)); }
  /// The same, with an order of the caller's among callbacks of the same time; not together with the other at().
  void at(SimTime due, std::uint64_t order, Work work);
  bool empty() const { return pending_.empty(); }

 private:
  void on_due();

  std::map<std::pair<SimTime, std::uint64_t>, Work> pending_;
  std::uint64_t next_ = 0;
  Alarm due_{AlarmRank::firmware, [this] { on_due(); }};
};

}  // namespace csdsim::csd_model
