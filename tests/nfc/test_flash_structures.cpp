// The structures of the timeline against plain implementations, and the timeline against other slicings of itself.
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include "base/fixed_divisor.h"
#include "base/nearly_sorted_queue.h"
#include "nfc/core/earliest_time.h"
#include "nfc/core/flash_timeline.h"

namespace csdsim::nfc {
namespace {

struct Element {
  SimTime at;
  bool before(const Element& o) const { return at < o.at; }
};

TEST_CASE("NearlySortedQueue pops in order whatever the order of insertion") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    NearlySortedQueue<Element> queue;
    std::vector<std::int64_t> model;  // sorted
    const int insert_percent = 45 + static_cast<int>(seed % 3) * 10;
    for (std::uint64_t step = 0; step < 3000; ++step) {
      if (static_cast<int>(random() % 100) < insert_percent) {
        // Rising, falling or arbitrary keys; the step keeps them distinct.
        const std::uint64_t high = seed % 4 == 0 ? step : seed % 4 == 1 ? 100'000 - step : random() % 1000;
        const auto key = static_cast<std::int64_t>(high * 4096 + step);
        queue.insert({SimTime{key}});
        model.insert(std::lower_bound(model.begin(), model.end(), key), key);
      } else if (random() % 1000 == 0) {
        queue.clear();
        model.clear();
      } else if (!model.empty() && random() % 4 == 0) {
        const std::size_t index = random() % model.size();
        queue.erase({SimTime{model[index]}});
        model.erase(model.begin() + static_cast<std::ptrdiff_t>(index));
      } else if (!model.empty()) {
        REQUIRE(queue.front().at.ps == model.front());
        queue.pop();
        model.erase(model.begin());
      }
      REQUIRE(queue.empty() == model.empty());
      REQUIRE(queue.front_time() == (model.empty() ? SimTime::max() : SimTime{model.front()}));
    }
    for (const std::int64_t key : model) {
      REQUIRE(queue.front().at.ps == key);
      queue.pop();
    }
    CHECK(queue.empty());
  }
}

TEST_CASE("TwoLevelMin finds the minimum, and replaces what is due in the order of indices") {
  for (const std::size_t n : {1U, 2U, 7U, 8U, 9U, 16U, 17U, 64U, 100U}) {
    INFO(n << " times, seed " << n);
    std::mt19937_64 random(n);
    TwoLevelMin times(n);
    CHECK(times.min() == SimTime::max());
    std::vector<std::int64_t> model(n, SimTime::max().ps);
    for (int step = 0; step < 2000; ++step) {
      const std::size_t index = random() % n;
      model[index] = random() % 10 == 0 ? SimTime::max().ps : static_cast<std::int64_t>(random() % 50);
      times.set(index, SimTime{model[index]});
      if (random() % 4 == 0) {
        const auto bound = static_cast<std::int64_t>(random() % 50);
        std::size_t next = 0;
        times.advance(SimTime{bound}, [&](std::size_t due) {
          while (model[next] >= bound) ++next;
          CHECK(due == next);
          return SimTime{model[next++] = bound + static_cast<std::int64_t>(random() % 50)};
        });
        for (; next < n; ++next) REQUIRE(model[next] >= bound);
      }
      REQUIRE(times.min().ps == *std::min_element(model.begin(), model.end()));
    }
  }
}

TEST_CASE("FixedDivisor divides exactly below 2^63") {
  std::mt19937_64 random(5);
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 63;
  std::vector<std::uint64_t> divisors{1, 2, 3, 5, 7, 10, 641, 1 << 20, (1 << 20) + 1, kLimit - 1, kLimit};
  for (int i = 0; i < 200; ++i) divisors.push_back(std::max<std::uint64_t>(1, random() >> (1 + random() % 62)));
  for (const std::uint64_t d : divisors) {
    const FixedDivisor divisor(d);
    std::vector<std::uint64_t> numbers{0, 1, d - 1, d, d + 1, kLimit - 1, kLimit / d * d, kLimit / d * d - 1};
    for (int i = 0; i < 100; ++i) numbers.push_back(random() >> (1 + random() % 62));
    for (const std::uint64_t n : numbers) {
      if (n >= kLimit) continue;
      INFO(n << " / " << d);
      REQUIRE(divisor.quotient(n) == n / d);
    }
  }
}

TEST_CASE("results do not depend on how the runs are sliced") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    FlashGeometry geometry;
    geometry.channels = 1 + static_cast<std::uint32_t>(random() % 12);
    geometry.dies_per_channel = 1 + static_cast<std::uint32_t>(random() % 4);
    FlashTiming timing;
    timing.arbitration = static_cast<BusArbitration>(random() % 3);
    timing.read_jitter = SimTime::microseconds(static_cast<std::int64_t>(random() % 20));
    timing.ecc_latency = SimTime::microseconds(static_cast<std::int64_t>(random() % 3));
    std::vector<std::vector<PageOp>> batches(40);
    for (auto& batch : batches) {
      batch.resize(1 + random() % 20);
      for (PageOp& op : batch) {
        op = {{random() % geometry.pages()},
              static_cast<PageOpKind>(random() % 8 < 6 ? 0 : 1 + random() % 2),
              OpClass::host,
              0,
              4096};
      }
    }
    const auto play = [&](bool sliced, FlashTimeline::Rules rules) {
      FlashTimeline timeline(geometry, timing, rules);
      std::vector<FlashCompletion> done;
      for (const auto& batch : batches) timeline.submit(batch, SimTime{});
      SimTime now{};
      while (timeline.next_event() != SimTime::max()) {
        now = sliced ? now + SimTime{static_cast<std::int64_t>(random() % 40'000'000)} : SimTime::max();
        timeline.take_completions(std::min(now, timeline.run(now)), done);
      }
      return std::pair{done, timeline.statistics()};
    };
    const auto [whole, whole_statistics] = play(false, FlashTimeline::Rules::automatic);
    REQUIRE(whole.size() == batches.size());
    for (const FlashTimeline::Rules rules : {FlashTimeline::Rules::automatic, FlashTimeline::Rules::general}) {
      const auto [sliced, sliced_statistics] = play(true, rules);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        REQUIRE(whole[i].ticket == sliced[i].ticket);
        REQUIRE(whole[i].at == sliced[i].at);
      }
      REQUIRE(whole_statistics == sliced_statistics);
    }
  }
}

TEST_CASE("a saturated channel moves data all the time") {
  FlashGeometry geometry;
  geometry.channels = 1;
  FlashTiming timing;
  FlashTimeline timeline(geometry, timing);
  std::vector<PageOp> ops(20'000);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const PlaneId plane{static_cast<std::uint32_t>(i % geometry.planes())};
    ops[i] = {geometry.address(plane, 0, 0), PageOpKind::read, OpClass::attend, 0, 4096};
  }
  timeline.submit(ops, SimTime{});
  const SimTime end = timeline.run(SimTime::max());
  const ChannelBusy& busy = timeline.statistics().channels[0];
  CHECK(busy.data_out == 20'000 * (SimTime::nanoseconds(30) + SimTime{2'925'715}));
  CHECK(busy.command == 20'000 * SimTime::nanoseconds(290));
  CHECK(busy.total() <= end);
  CHECK(static_cast<double>(busy.total().ps) > 0.98 * static_cast<double>(end.ps));
  CHECK(timeline.statistics().total_bytes() == Bytes{20'000 * 4096});
  CHECK(timeline.statistics().ops[static_cast<std::size_t>(OpClass::attend)][0] == 20'000);
}

}  // namespace
}  // namespace csdsim::nfc
