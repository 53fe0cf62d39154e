// The processors that run the firmware.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <systemc>
#include <vector>

#include "base/units.h"
#include "base/work_observer.h"
#include "csd_model/firmware/pooled_work.h"
#include "csd_model/firmware/timed_work.h"
#include "simulation/sim_time.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::csd_model {

/// Embedded cores that take work in the order of run() calls, each one piece at a time. When the cores are idle, work
/// of duration 0 runs at once, inside run().
class FirmwareCores : public sc_core::sc_module {
 public:
  using Work = TimedWork::Work;

  /// Throws UserError if `cores` is 0. With `units` each core is a module that it makes, whose `amount` is the duration
  /// in picoseconds.
  FirmwareCores(const sc_core::sc_module_name& name, std::uint32_t cores, const UnitPool::Make& units = nullptr);

  /// Runs `work` when the core that is free first has spent `duration` on it.
  void run(SimTime duration, Work work);
  /// The same with a client in place of a callback.
  void run(SimTime duration, WorkClient& client, std::uint64_t tag) {
    if (pool_ == nullptr && duration.ps > 0) return work_.at(take(duration), client, tag);
    run(duration, [&client, tag] { client.work_due(tag); });
  }

  /// What the cores have been given goes on `by` later, and they are free for other work until then. Not with units,
  /// nor while an earlier call is in effect.
  void stand_still_for(SimTime by);

  /// The power fails: the cores have no work, and nobody is called back any more. Not with units.
  void forget();

  /// By core; it must outlive the cores.
  void observe(WorkObserver* observer) { observer_ = observer; }

  /// No core has work: work of duration 0 would run at once.
  bool idle() const { return pool_ != nullptr ? pool_->idle() : work_.empty(); }

  std::uint32_t count() const { return static_cast<std::uint32_t>(free_at_.size()); }
  /// Summed over the cores.
  const SimTime& busy() const { return busy_; }
  /// The same up to `now`; busy() counts work when it is given to a core.
  SimTime busy_until(SimTime now) const {
    if (pool_ != nullptr) return busy_ - pool_->ahead(now);
    SimTime ahead;
    for (const SimTime free : free_at_) ahead += std::max(free - now, SimTime{});
    for (const SimTime left : left_) ahead += left;
    return busy_ - ahead;
  }
  /// Time that work waited for a core.
  SimTime waited() const { return waited_; }
  /// Registers the busy time, if there is any; the cores must outlive the dump.
  void register_statistics(Statistics& statistics) const;

  void trace(sc_core::sc_trace_file* file) const override {
    if (pool_ != nullptr) pool_->trace(file);
  }

 private:
  void go_on();
  /// When the core that is free first has spent `duration`, which it is given now.
  SimTime take(SimTime duration) {
    const SimTime now = sim_time_now();
    if (!left_.empty()) [[unlikely]]
      go_on();
    SimTime& free_at = *std::min_element(free_at_.begin(), free_at_.end());
    const SimTime start = std::max(free_at, now);
    waited_ += start - now;
    free_at = start + duration;
    busy_ += duration;
    if (observer_ != nullptr)
      observer_->work(static_cast<std::uint32_t>(&free_at - free_at_.data()), "map lookups", start, free_at, 0);
    return free_at;
  }

  std::vector<SimTime> free_at_;
  std::vector<SimTime> left_;  ///< time that is left of the work that stands still; empty while none does
  SimTime stands_until_;
  SimTime busy_;
  SimTime waited_;
  TimedWork work_;
  WorkObserver* observer_ = nullptr;
  std::unique_ptr<PooledWork> pool_;  ///< null: `free_at_` and `work_` take its place
};

}  // namespace csdsim::csd_model
