// Page buffers of a channel: who takes them, who waits, when they come back.
#include <catch2/catch.hpp>
#include <vector>

#include "base/error.h"
#include "played.h"

namespace csdsim::nfc {
namespace {

TEST_CASE("a data-out waits for a page buffer until a page is decoded") {
  FlashTiming t = coarse();
  t.ecc_latency = 500_ps;
  t.page_buffers = 1;
  CHECK(play(t, {{read(0), 0_ps}, {read(2), 0_ps}}).done == Times{680_ps, 680_ps + 70_ps + 500_ps});
  t.page_buffers = 2;
  const Played three = play(t, {{read(0), 0_ps}, {read(2), 0_ps}, {read(4), 0_ps}});
  CHECK(three.done == Times{680_ps, 750_ps, 680_ps + 70_ps + 500_ps});
  CHECK(three.statistics.buffer_overflows == 0);
  t.page_buffers = 1;  // an attempt that fails gives its buffer back, too
  CHECK(play(t, {{read_again(0, 1), 0_ps}, {read(2), 0_ps}}).done ==
        Times{690_ps + 70_ps + 500_ps + 570_ps, 690_ps + 70_ps + 500_ps});
}

TEST_CASE("a batch holds its page buffers until it is released, at t and not at t - 1 ps") {
  FlashTiming t = coarse();
  t.page_buffers = 1;
  // The page of plane 2 is ready at 120.
  for (const SimTime release : {181_ps, 249_ps, 250_ps, 1000_ps}) {
    const Played two = play_all(t, {{{read(0)}, 0_ps, release}, {read(2), 0_ps}});
    CHECK(two.done == Times{180_ps, release + 70_ps});
    CHECK(two.statistics.buffer_overflows == 0);
  }
  // A page that is ready 1 ps before the release, at it and 1 ps after it.
  for (const auto& [submitted, out] : {std::pair{389_ps, 500_ps}, {390_ps, 500_ps}, {391_ps, 501_ps}})
    CHECK(play_all(t, {{{read(0)}, 0_ps, 500_ps}, {read(2), submitted}}).done == Times{180_ps, out + 70_ps});
  // A batch of two pages gives both buffers back; one that does not hold gives its buffer back when it is decoded.
  t.page_buffers = 2;
  CHECK(play_all(t, {{{read(0), read(2)}, 0_ps, 400_ps}, {read(4), 1_ps}, {read(6), 1_ps}}).done ==
        Times{250_ps, 400_ps + 70_ps, 400_ps + 140_ps});
  CHECK(play_all(t, {{{read(0)}, 0_ps, 400_ps}, {read(2), 0_ps}, {read(4), 1_ps}}).done ==
        Times{180_ps, 250_ps, 250_ps + 70_ps});
}

TEST_CASE("only a batch that holds and is complete can be released, and once") {
  FlashTiming t = coarse();
  t.page_buffers = 1;
  FlashTimeline timeline(small(), t);
  const PageOp first = read(0);
  const FlashTicket held = timeline.submit({&first, 1}, 0_ps, true);
  std::vector<FlashCompletion> done;
  REQUIRE(timeline.run(SimTime::max()) == 180_ps);
  CHECK_THROWS_AS(timeline.release(held, 180_ps), InternalError);
  timeline.take_completions(180_ps, done);
  timeline.release(held, 250_ps);
  CHECK_THROWS_AS(timeline.release(held, 250_ps), InternalError);
}

TEST_CASE("batches complete whatever they hold: what only unfinished batches stand in the way of goes ahead") {
  FlashTiming t = coarse();
  t.page_buffers = 2;
  FlashTimeline timeline(small(), t);
  const std::vector<PageOp> large{read(0), read(2), read(4), read(6), read(1), read(3)};
  const FlashTicket a = timeline.submit(large, 0_ps, true);
  const FlashTicket b = timeline.submit(large, 0_ps, true);
  std::vector<FlashCompletion> done;
  SimTime last{};
  for (std::size_t n = 1; n <= 2; ++n) {
    last = timeline.run(SimTime::max());
    REQUIRE(last != SimTime::max());
    timeline.take_completions(last, done);
    REQUIRE(done.size() == n);
    timeline.release(done.back().ticket, last);
  }
  CHECK(done[0].ticket == a);
  CHECK(done[1].ticket == b);
  CHECK(timeline.statistics().buffer_overflows > 0);
  CHECK(timeline.run(SimTime::max()) == SimTime::max());
  // All are free again.
  const std::uint64_t overflows = timeline.statistics().buffer_overflows;
  timeline.submit(std::vector{read(0), read(2)}, last, true);
  timeline.take_completions(timeline.run(SimTime::max()), done);
  CHECK(timeline.statistics().buffer_overflows == overflows);
  // Only unfinished batches: a complete one gives its buffers back, so that the second batch waits for its release.
  for (const SimTime release : {4999_ps, 5000_ps, 5001_ps}) {
    const Played both = play_all(t, {{large, 0_ps, release}, {large, 0_ps, 6000_ps}});
    CHECK(both.done == Times{done[0].at, release + 6 * 70_ps});
    CHECK(both.statistics.buffer_overflows > 0);
  }
}

}  // namespace
}  // namespace csdsim::nfc
