// The time of a flash that stands still now and then.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "base/units.h"
#include "base/work_observer.h"
#include "nfc/core/flash_observers.h"

namespace csdsim::nfc {

/// Own time and simulated time differ by what the standstills so far have lasted.
class OwnTime {
 public:
  /// From `now` until `end` own time does not pass. Standstills do not overlap.
  void stand_still(SimTime now, SimTime end) {
    behind_ += end - now;
    stands_until_ = end;
  }
  SimTime own(SimTime simulated) const { return std::max(simulated, stands_until_) - behind_; }
  /// The last simulated moment of an own time that is not before the last standstill.
  SimTime simulated(SimTime own) const { return own == SimTime::max() ? own : own + behind_; }

 private:
  SimTime behind_;
  SimTime stands_until_;
};

/// Tells observers in simulated time what a timeline reports in its own.
class ObserversInOwnTime {
 public:
  explicit ObserversInOwnTime(const OwnTime& time) : time_(time) {}

  /// They must outlive this. The result holds until the next call.
  FlashObservers in_own_time(const FlashObservers& observers) {
    const auto wrap = [this](std::size_t i, WorkObserver* to) -> WorkObserver* {
      wrapped_[i].set(to, time_);
      return to == nullptr ? nullptr : &wrapped_[i];
    };
    return {.channels = wrap(0, observers.channels),
            .planes = wrap(1, observers.planes),
            .filters = wrap(2, observers.filters),
            .decoders = wrap(3, observers.decoders),
            .buffers = wrap(4, observers.buffers)};
  }

 private:
  class Wrapped final : public WorkObserver {
   public:
    void set(WorkObserver* to, const OwnTime& time) {
      to_ = to;
      time_ = &time;
    }
    void work(std::uint32_t unit, std::string_view what, SimTime start, SimTime end, std::uint64_t amount) override {
      to_->work(unit, what, time_->simulated(start), time_->simulated(end), amount);
    }
    void level(std::uint32_t unit, std::uint64_t value, SimTime at) override {
      to_->level(unit, value, time_->simulated(at));
    }

   private:
    WorkObserver* to_ = nullptr;
    const OwnTime* time_ = nullptr;
  };

  const OwnTime& time_;
  std::array<Wrapped, 5> wrapped_;
};

}  // namespace csdsim::nfc
