// Work of the drive that is due at known times.
#pragma once

#include <cstdint>
#include <utility>

#include "base/callback.h"
#include "base/nearly_sorted_queue.h"
#include "base/slot_pool.h"
#include "base/units.h"
#include "simulation/event_loop.h"

namespace csdsim::csd_model {

/// Told when work is due, by the tag that it was given with.
class WorkClient {
 public:
  virtual void work_due(std::uint64_t tag) = 0;

 protected:
  ~WorkClient() = default;
};

/// Calls back at given times; callbacks of the same time run in the order of at() calls.
class TimedWork : private WorkClient {
 public:
  using Work = Callback<void()>;

  void at(SimTime due, Work work) { at(due, next_++, std::move(work)); }
  /// The same, with an order of the caller's among callbacks of the same time; not together with the other at().
  void at(SimTime due, std::uint64_t order, Work work) { insert({due, order, this, work_.put(std::move(work))}); }
  /// The same with a client in place of a callback.
  void at(SimTime due, WorkClient& client, std::uint64_t tag) { insert({due, next_++, &client, tag}); }
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
    WorkClient* client;  ///< this: the tag is the slot of a callback
    std::uint64_t tag;
    constexpr bool before(const Due& o) const { return at != o.at ? at < o.at : order < o.order; }
  };
  void insert(const Due& due) {
    pending_.insert(due);
    due_.set(pending_.front_time());
  }
  void work_due(std::uint64_t slot) override;
  void on_due();

  NearlySortedQueue<Due> pending_;
  SlotPool<Work> work_;
  bool running_ = false;
  std::uint64_t next_ = 0;
  Alarm due_{AlarmRank::firmware, [this] { on_due(); }};
};

}  // namespace csdsim::csd_model
