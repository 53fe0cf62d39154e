// Flash of unlimited parallelism behind an EnginePort, and the loop that runs a scheduler against it.
#pragma once

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
  /// A batch takes `latency` + pages * `per_page`.
  explicit FakeFlash(SimTime latency = SimTime::microseconds(50), SimTime per_page = {})
      : latency_(latency), per_page_(per_page) {}

  void read_pages(PageRead read, std::span<const PageOp> ops, std::uint64_t lookups, SimTime at) override {
    reads.push_back({read, at, {ops.begin(), ops.end()}, lookups});
    arrivals_.emplace(std::tuple{at + latency_ + per_page_ * static_cast<std::int64_t>(ops.size()), order_++}, read);
  }
  void pages_consumed(PageRead read, SimTime at) override { consumed.emplace_back(read, at); }
  void task_done(TaskId id, SimTime at) override { done.emplace_back(id, at); }

  /// Runs until nothing is due any more; returns the time of the last event.
  SimTime run(HeadScheduler& scheduler) {
    SimTime now;
    while (!arrivals_.empty() || scheduler.next_event() != SimTime::max()) {
      const SimTime arrival = arrivals_.empty() ? SimTime::max() : std::get<0>(arrivals_.begin()->first);
      now = std::min(arrival, scheduler.next_event());
      if (arrival == now) {
        const PageRead read = arrivals_.begin()->second;
        arrivals_.erase(arrivals_.begin());
        scheduler.pages_arrived(read, now);
      } else {
        scheduler.advance(now);
      }
    }
    return now;
  }

  std::vector<Read> reads;
  std::vector<std::pair<PageRead, SimTime>> consumed;
  std::vector<std::pair<TaskId, SimTime>> done;

 private:
  SimTime latency_, per_page_;
  std::uint64_t order_ = 0;
  std::map<std::tuple<SimTime, std::uint64_t>, PageRead> arrivals_;
};

}  // namespace csdsim::engine::test
