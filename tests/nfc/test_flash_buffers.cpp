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
  for (const SimTime release : {249_ps, 250_ps, 1000_ps}) {
    FlashTimeline timeline(small(), t);
    const PageOp first = read(0), second = read(2);
    const FlashTicket held = timeline.submit({&first, 1}, 0_ps, true);
    timeline.submit({&second, 1}, 0_ps);
    std::vector<FlashCompletion> done;
    REQUIRE(timeline.run(SimTime::max()) == 180_ps);
    CHECK_THROWS_AS(timeline.release(held, 180_ps), InternalError);
    timeline.take_completions(180_ps, done);
    CHECK(timeline.run(SimTime::max()) == SimTime::max());  // stuck until the release
    timeline.release(held, release);
    CHECK_THROWS_AS(timeline.release(held, release), InternalError);
    CHECK(timeline.run(release) == SimTime::max());
    CHECK(timeline.run(release + 1_ps) == release + 70_ps);
    CHECK(timeline.statistics().buffer_overflows == 0);
  }
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
}

}  // namespace
}  // namespace csdsim::nfc
