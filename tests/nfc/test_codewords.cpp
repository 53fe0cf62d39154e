// Codewords and page registers in closed form: how much of a page crosses the channel, and when it is sensed.
#include <catch2/catch.hpp>
#include <vector>

#include "base/error.h"
#include "played.h"

namespace csdsim::nfc {
namespace {

TEST_CASE("a codeword brings its parity over the bus and through the decoder") {
  for (const auto rules : {FlashTimeline::Rules::automatic, FlashTimeline::Rules::general}) {
    FlashTiming t = coarse();
    t.codewords = CodewordsConfig{.size = Bytes{16}, .parity = Bytes{4}};
    const auto bytes = [](PageOp op, std::uint32_t count) {
      op.channel_bytes = count;
      return std::pair{op, 0_ps};
    };
    const auto alone = [&](PageOp op, std::uint32_t count) { return play(t, {bytes(op, count)}, rules); };
    CHECK(alone(read(0), 64).done == Times{10_ps + 100_ps + 6_ps + 80_ps});
    CHECK(alone(read(0), 32).done == Times{10_ps + 100_ps + 6_ps + 40_ps});
    CHECK(alone(read(0), 16).done == Times{10_ps + 100_ps + 6_ps + 20_ps});
    CHECK(alone(read(0), 17).done == Times{10_ps + 100_ps + 6_ps + 17_ps + 8_ps});  // one byte begins a codeword
    CHECK(alone(program(0), 64).done == Times{10_ps + 80_ps + 1000_ps});
    CHECK(alone(read(0), 32).statistics.total_bytes() == Bytes{40});
    CHECK(alone(program(0), 64).statistics.total_bytes() == Bytes{80});
    CHECK(alone(erase(0), 64).statistics.total_bytes() == Bytes{});
    const Played again = play(t, {bytes(read_again(0, 2), 32)}, rules);
    CHECK(again.statistics.total_bytes() == Bytes{40});
    CHECK(again.statistics.retry_bytes == 80);
    t.ecc_bandwidth = Bandwidth{500'000'000'000};
    CHECK(alone(read(0), 32).done == Times{10_ps + 100_ps + 6_ps + 40_ps + 80_ps});
  }
  FlashTiming bad = coarse();
  bad.codewords = CodewordsConfig{.size = {}, .parity = Bytes{4}};
  CHECK_THROWS_AS(validate(bad), UserError);
}

TEST_CASE("a page in the register of its plane is not sensed again") {
  FlashTiming t = coarse();
  t.reuse_register = true;
  const auto page = [](std::uint32_t plane, std::uint32_t number) {
    return op(PageOpKind::read, plane, OpClass::host, number);
  };
  const SimTime sensed = 10_ps + 100_ps + 70_ps, held = 10_ps + 70_ps;
  const Played twice = play(t, {{page(0, 3), 0_ps}, {page(0, 3), 1_ps}});
  CHECK(twice.done == Times{sensed, sensed + held});
  CHECK(twice.stages[1] == FlashStages{179_ps, 0_ps, 10_ps, 0_ps, 70_ps, 0_ps});
  CHECK(twice.statistics.register_reads == 1);
  CHECK(twice.statistics.array_time[0] == 100_ps);
  // However late, but not on another plane, and not with another page in between, even one that came 1 ps before.
  CHECK(play(t, {{page(0, 3), 0_ps}, {page(0, 3), 9000_ps}}).done == Times{sensed, 9000_ps + held});
  CHECK(play(t, {{page(0, 3), 0_ps}, {page(1, 3), 500_ps}}).done == Times{sensed, 500_ps + sensed});
  CHECK(play(t, {{page(0, 3), 0_ps}, {page(0, 4), 499_ps}, {page(0, 3), 500_ps}}).done ==
        Times{sensed, 499_ps + sensed, 499_ps + 2 * sensed});
  // Programs and erases of the plane take the register, also the program of the page itself.
  CHECK(play(t, {{page(0, 3), 0_ps}, {op(PageOpKind::program, 0, OpClass::host, 3), 180_ps}, {page(0, 3), 180_ps}})
            .done == Times{sensed, sensed + 1074_ps, 2 * sensed + 1074_ps});
  CHECK(play(t, {{page(0, 3), 0_ps}, {erase(0), 180_ps}, {page(0, 3), 180_ps}}).done[2] == 2 * sensed + 5010_ps);
  // A retry senses: the levels are others.
  PageOp retried = page(0, 3);
  retried.retries = 1;
  CHECK(play(t, {{page(0, 3), 0_ps}, {retried, 180_ps}}).done == Times{sensed, sensed + held + sensed});
  // A program that resumes takes the register again.
  t.suspend = SuspendConfig{.kinds = Suspend::program, .latency = 20_ps, .max = 2};
  const Played resumed = play(t, {{program(0), 0_ps}, {page(0, 3), 200_ps}, {page(0, 3), 450_ps}});
  CHECK(resumed.done[1] == 200_ps + 10_ps + 20_ps + sensed);
  CHECK(resumed.done[2] == 450_ps + 10_ps + 20_ps + sensed);
  CHECK(resumed.statistics.register_reads == 0);
  t.reuse_register = false;
  CHECK(play(t, {{page(0, 3), 0_ps}, {page(0, 3), 1_ps}}).statistics.register_reads == 0);
}

TEST_CASE("a word line is programmed in the time of one page, with the data of all of them") {
  for (const auto rules : {FlashTimeline::Rules::automatic, FlashTimeline::Rules::general}) {
    FlashTiming t = coarse();
    t.word_line_pages = 3;
    const auto bytes = [&](PageOp op, std::uint32_t count) {
      op.channel_bytes = count;
      return play(t, {{op, 0_ps}}, rules);
    };
    CHECK(bytes(program(0), 64).done == Times{10_ps + 64_ps + 1000_ps});
    CHECK(bytes(program(0), 192).done == Times{10_ps + 192_ps + 1000_ps});
    CHECK(bytes(program(0), 192).statistics.array_time[1] == 1000_ps);
    CHECK_THROWS_AS(bytes(program(0), 193), InternalError);
    CHECK_THROWS_AS(bytes(read(0), 65), InternalError);
    t.codewords = CodewordsConfig{.size = Bytes{16}, .parity = Bytes{4}};
    CHECK(bytes(program(0), 192).done == Times{10_ps + 240_ps + 1000_ps});
    t.word_line_pages = 1;
    CHECK_THROWS_AS(bytes(program(0), 65), InternalError);
  }
}

}  // namespace
}  // namespace csdsim::nfc
