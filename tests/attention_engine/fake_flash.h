// Flash of unlimited parallelism, or with one channel, behind an EnginePort, and the loop that runs a scheduler against
// it.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "attention_engine/core/head_scheduler.h"

namespace csdsim::engine::test {

class FakeFlash : public EnginePort {
 public:
  struct Read {
    PageRead read;
    SimTime at;
    std::vector<PageOp> ops;
    std::uint64_t lookups = 0;
  };
  /// A batch takes `latency` + pages * `per_page`; with `one_channel` batches go through it one after another,
  /// `per_page` each page.
  explicit FakeFlash(SimTime latency = SimTime::microseconds(50), SimTime per_page = {}, bool one_channel = false)
      : latency_(latency), per_page_(per_page), one_channel_(one_channel) {}

  void read_pages(PageRead read, std::span<const PageOp> ops, std::uint64_t lookups, SimTime at) override {
    reads.push_back({read, at, {ops.begin(), ops.end()}, lookups});
    const SimTime sensed = at + latency_;
    const SimTime begin = one_channel_ ? std::max(sensed, channel_free_) : sensed;
    channel_free_ = begin + per_page_ * static_cast<std::int64_t>(ops.size());
    arrivals_.emplace(std::tuple{channel_free_, order_++}, read);
  }
  void pages_consumed(PageRead read, SimTime at) override { consumed.emplace_back(read, at); }
  void task_done(TaskId id, SimTime at) override { done.emplace_back(id, at); }

  /// Runs until nothing is due any more; returns the time of the last event.
  SimTime run(HeadScheduler& scheduler) { return run_until(scheduler, SimTime::max()); }
  /// The same for events before `end`.
  SimTime run_until(HeadScheduler& scheduler, SimTime end) {
    SimTime now;
    for (;;) {
      const SimTime arrival = arrivals_.empty() ? SimTime::max() : std::get<0>(arrivals_.begin()->first);
      const SimTime next = std::min(arrival, scheduler.next_event());
      if (next >= end) break;
      now = next;
      if (arrival == now) {
        const PageRead read = arrivals_.begin()->second;
        arrivals_.erase(arrivals_.begin());
        scheduler.pages_arrived(read, now);
      } else {
        scheduler.advance(now);
      }
      if (watch) watch();
    }
    return now;
  }

  /// Reads that have been asked for and not answered.
  std::size_t outstanding() const { return arrivals_.size(); }
  /// Called after each event.
  std::function<void()> watch;

  std::vector<Read> reads;
  std::vector<std::pair<PageRead, SimTime>> consumed;
  std::vector<std::pair<TaskId, SimTime>> done;

 private:
  SimTime latency_, per_page_;
  bool one_channel_;
  SimTime channel_free_;
  std::uint64_t order_ = 0;
  std::map<std::tuple<SimTime, std::uint64_t>, PageRead> arrivals_;
};

}  // namespace csdsim::engine::test
