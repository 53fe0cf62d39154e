// Every rule of GeneralTimeline in closed form, at t - 1 ps and at t.
#include <catch2/catch.hpp>
#include <vector>

#include "base/error.h"
#include "played.h"

namespace csdsim::nfc {
namespace {

TEST_CASE("a retry repeats command, array, data-out and decoding, and keeps the plane") {
  for (const auto rules : {FlashTimeline::Rules::automatic, FlashTimeline::Rules::general}) {
    FlashTiming t = coarse();
    t.ecc_latency = 7_ps;
    const Played two = play(t, {{read_again(0, 2), 0_ps}, {read(0), 1_ps}}, rules);
    CHECK(two.done == Times{3 * 187_ps, 2 * 187_ps + 180_ps + 187_ps});  // the plane is free when the last is out
    CHECK(two.statistics.retries == 2);
    CHECK(two.statistics.total_ops() == 2);
    CHECK(two.statistics.channels[0].data_out == 4 * 70_ps);
    CHECK(two.statistics.plane_busy[0] == 2 * 187_ps + 2 * 180_ps);
    CHECK(two.stages[0] == FlashStages{0_ps, 0_ps, 30_ps, 300_ps, 210_ps, 21_ps});
    t.retry_latency = 30_ps;
    CHECK(play(t, {{read_again(0, 2), 0_ps}}, rules).done == Times{187_ps + 2 * 117_ps});
  }
}

TEST_CASE("pages of a type have its latencies") {
  FlashTiming t = coarse();
  t.page_types =
      PageTypesConfig{.read_latency = {50_ps, 100_ps, 200_ps}, .program_latency = {500_ps, 1000_ps, 3000_ps}};
  for (std::uint32_t page = 0; page < 6; ++page) {
    const auto type = page % 3;
    CHECK(play(t, {{op(PageOpKind::read, 0, OpClass::host, page), 0_ps}}).done[0] ==
          80_ps + t.page_types->read_latency[type]);
    CHECK(play(t, {{op(PageOpKind::program, 0, OpClass::host, page), 0_ps}}).done[0] ==
          74_ps + t.page_types->program_latency[type]);
  }
}

TEST_CASE("planes of a die join the command of one of them, if they ask for the same at that moment") {
  FlashTiming t = coarse();
  t.plane_mode = PlaneMode::multi_plane;
  // Both commands, then both arrays, then one data-out after the other.
  const Played both = play(t, {{read(0), 0_ps}, {read(1), 0_ps}});
  CHECK(both.done == Times{20_ps + 100_ps + 70_ps, 20_ps + 100_ps + 140_ps});
  CHECK(both.statistics.joined_ops == 1);
  CHECK(both.stages[0] == FlashStages{0_ps, 10_ps, 10_ps, 100_ps, 70_ps, 0_ps});
  CHECK(both.stages[1] == FlashStages{0_ps, 10_ps + 70_ps, 10_ps, 100_ps, 70_ps, 0_ps});
  // 1 ps too late, it waits until the die is idle; so does another kind, and a page of another number in its block.
  CHECK(play(t, {{read(0), 0_ps}, {read(1), 1_ps}}).done == Times{180_ps, 360_ps});
  CHECK(play(t, {{read(0), 0_ps}, {program(1), 0_ps}}).done == Times{180_ps, 180_ps + 1074_ps});
  CHECK(play(t, {{read(0), 0_ps}, {op(PageOpKind::read, 1, OpClass::host, 1), 0_ps}}).done == Times{180_ps, 360_ps});
  CHECK(play(t, {{program(0), 0_ps}, {op(PageOpKind::program, 1, OpClass::host, 1), 0_ps}}).done ==
        Times{1074_ps, 2148_ps});
  // Other dies do not.
  CHECK(play(t, {{read(0), 0_ps}, {read(2), 1_ps}}).done == Times{180_ps, 250_ps});
  // Programs bring their data one after the other and end together.
  const Played programs = play(t, {{program(0), 0_ps}, {program(1), 0_ps}});
  CHECK(programs.done == Times{148_ps + 1000_ps, 148_ps + 1000_ps});
  // Erases likewise, of any two blocks.
  CHECK(play(t, {{erase(0), 0_ps}, {op(PageOpKind::erase, 1, OpClass::host, 3), 0_ps}}).done ==
        Times{5020_ps, 5020_ps});
}

TEST_CASE("pages of a group that fail are read again together, when the last is out and decoded") {
  FlashTiming t = coarse();
  t.plane_mode = PlaneMode::multi_plane;
  t.ecc_latency = 7_ps;
  const Played all = play(t, {{read_again(0, 1), 0_ps}, {read_again(1, 1), 0_ps}});
  const SimTime round = 20_ps + 100_ps + 140_ps + 7_ps;
  CHECK(all.done == Times{round + 20_ps + 100_ps + 70_ps + 7_ps, 2 * round});
  // Plane 0 failed at 197, plane 1 is out at 260: only then.
  const Played one = play(t, {{read_again(0, 1), 0_ps}, {read(1), 0_ps}});
  CHECK(one.done == Times{260_ps + 187_ps, 267_ps});
  CHECK(one.stages[0][at(FlashStage::plane_wait)] == 63_ps);
}

TEST_CASE("cache read senses the next page while the last one waits for the bus or is on it") {
  FlashTiming t = coarse();
  t.cache = CacheConfig{.program = false, .busy_time = 3_ps};
  // 0: command, 10: array, 110: moves, 113: data-out and the next command ask together; commands first.
  const Played two = play(t, {{read(0), 0_ps}, {read(0), 0_ps}});
  CHECK(two.done == Times{113_ps + 10_ps + 70_ps, 123_ps + 100_ps + 3_ps + 70_ps});
  CHECK(two.statistics.plane_busy[0] == 296_ps);
  // A slow channel: the second page, sensed at 123 + 100, moves when the first is out.
  t.data_out_setup = 436_ps;
  CHECK(play(t, {{read(0), 0_ps}, {read(0), 0_ps}}).done == Times{123_ps + 500_ps, 623_ps + 3_ps + 500_ps});
  // Only reads go ahead, and none behind a page that is going to fail.
  CHECK(play(t, {{read(0), 0_ps}, {erase(0), 0_ps}}).done == Times{613_ps, 613_ps + 5010_ps});
  CHECK(play(t, {{read_again(0, 1), 0_ps}, {read(0), 0_ps}}).done ==
        Times{613_ps + 123_ps + 500_ps, 613_ps + 123_ps + 503_ps + 500_ps});
}

TEST_CASE("cache program takes data while the last page is programmed") {
  FlashTiming t = coarse();
  t.cache = CacheConfig{.read = false, .busy_time = 3_ps};
  // The second is in at 148, its array starts at 1074 + 3; the third asks then, its array starts at 2077 + 3.
  const Played three = play(t, {{program(0), 0_ps}, {program(0), 0_ps}, {program(0), 0_ps}});
  CHECK(three.done == Times{1074_ps, 2077_ps, 3080_ps});
  CHECK(three.stages[1] == FlashStages{74_ps + 926_ps, 0_ps, 10_ps, 1003_ps, 64_ps, 0_ps});
  // Its data comes in while the first is done: it starts when the data is in.
  CHECK(play(t, {{program(0), 0_ps}, {program(0), 1050_ps}}).done[1] == 1050_ps + 74_ps + 3_ps + 1000_ps);
  CHECK(play(t, {{program(0), 0_ps}, {program(0), 1073_ps}}).done[1] == 1073_ps + 74_ps + 3_ps + 1000_ps);
  CHECK(play(t, {{program(0), 0_ps}, {program(0), 1074_ps}}).done[1] == 1074_ps + 1074_ps);  // nothing to wait for
  // An erase waits for the plane to be empty.
  CHECK(play(t, {{program(0), 0_ps}, {erase(0), 0_ps}}).done[1] == 1074_ps + 5010_ps);
}

TEST_CASE("a read suspends a program, whose remaining time is kept to the picosecond") {
  FlashTiming t = coarse();
  t.suspend = SuspendConfig{.latency = 20_ps, .resume_latency = 5_ps};
  // The array runs from 74 to 1074. At 500 the suspend, at 510 it stops with 564 left, at 530 the read.
  const Played p = play(t, {{program(0), 0_ps}, {read(0), 500_ps}});
  const SimTime out = 530_ps + 180_ps;
  CHECK(p.done == Times{out + 10_ps + 5_ps + 564_ps, out});
  CHECK(p.statistics.suspends == 1);
  CHECK(p.statistics.channels[0].command == 40_ps);
  CHECK(p.stages[0] == FlashStages{0_ps, 0_ps, 10_ps, p.done[0] - 74_ps, 64_ps, 0_ps});
  CHECK(p.stages[1] == FlashStages{30_ps, 0_ps, 10_ps, 100_ps, 70_ps, 0_ps});
  // The suspend is over at 1073: 1 ps is left. At 1074 it comes too late, and the read goes as without.
  CHECK(play(t, {{program(0), 0_ps}, {read(0), 1063_ps}}).done ==
        Times{1093_ps + 180_ps + 15_ps + 1_ps, 1093_ps + 180_ps});
  CHECK(play(t, {{program(0), 0_ps}, {read(0), 1064_ps}}).done == Times{1074_ps, 1074_ps + 180_ps});
  // Once only; the second read, after the resume, waits.
  const Played twice = play(t, {{program(0), 0_ps}, {read(0), 500_ps}, {read(0), 800_ps}});
  CHECK(twice.done[2] == twice.done[0] + 180_ps);
  t.suspend->max = 2;
  const Played more = play(t, {{program(0), 0_ps}, {read(0), 500_ps}, {read(0), 800_ps}});
  CHECK(more.done[2] == 800_ps + 30_ps + 180_ps);
  CHECK(more.statistics.suspends == 2);
  // Which kinds.
  CHECK(play(t, {{erase(0), 0_ps}, {read(0), 500_ps}}).done[1] == 710_ps);
  t.suspend->kinds = Suspend::program;
  CHECK(play(t, {{erase(0), 0_ps}, {read(0), 500_ps}}).done[1] == 5010_ps + 180_ps);
  CHECK(play(t, {{program(0), 0_ps}, {read(0), 500_ps}}).done[1] == 710_ps);
  t.suspend->kinds = Suspend::erase;
  CHECK(play(t, {{program(0), 0_ps}, {read(0), 500_ps}}).done[1] == 1074_ps + 180_ps);
}

TEST_CASE("with classes, only a strictly more urgent read suspends") {
  FlashTiming t = coarse();
  t.suspend = SuspendConfig{.kinds = Suspend::program, .latency = {}};
  t.class_priority = {OpClass::host, OpClass::attend};
  const auto done = [&](OpClass running, OpClass reads) {
    return play(t, {{program(0, running), 0_ps}, {read(0, reads), 500_ps}}).done[1];
  };
  CHECK(done(OpClass::gc, OpClass::host) == 690_ps);
  CHECK(done(OpClass::gc, OpClass::attend) == 690_ps);
  CHECK(done(OpClass::attend, OpClass::host) == 690_ps);
  CHECK(done(OpClass::attend, OpClass::attend) == 1254_ps);
  CHECK(done(OpClass::host, OpClass::attend) == 1254_ps);
  CHECK(done(OpClass::gc, OpClass::map) == 1254_ps);  // neither is named: equal
}

TEST_CASE("more urgent classes overtake, within bounds") {
  FlashTiming t = coarse();
  t.class_priority = {OpClass::host};
  // Something runs in the plane; then y, then x are submitted. Does x go before y?
  const auto overtakes = [&](const PageOp& y, const PageOp& x) {
    const Times done = play(t, {{read(0), 0_ps}, {y, 1_ps}, {x, 2_ps}}).done;
    return done[2] < done[1];
  };
  const OpClass high = OpClass::host, low = OpClass::gc;
  CHECK(overtakes(read(0, low), read(0, high)));
  CHECK(overtakes(program(0, low), read(0, high)));
  CHECK(overtakes(erase(0, low), read(0, high)));
  CHECK(overtakes(read(0, low), program(0, high)));
  CHECK(overtakes(program(0, low), program(0, high)));
  CHECK_FALSE(overtakes(erase(0, low), program(0, high)));
  CHECK_FALSE(overtakes(read(0, low), erase(0, high)));
  CHECK_FALSE(overtakes(erase(0, low), erase(0, high)));
  CHECK_FALSE(overtakes(read(0, high), read(0, high)));
  CHECK_FALSE(overtakes(read(0, low), read(0, low)));
  CHECK_FALSE(overtakes(read(0, high), read(0, low)));
  CHECK_FALSE(overtakes(read(0, low), read(0, OpClass::map)));  // neither is named
  // The plane is free at 180: x takes part at 180, at 181 y has gone.
  CHECK(play(t, {{read(0), 0_ps}, {read(0, low), 1_ps}, {read(0), 180_ps}}).done[2] == 360_ps);
  CHECK(play(t, {{read(0), 0_ps}, {read(0, low), 1_ps}, {read(0), 181_ps}}).done[2] == 540_ps);
}

TEST_CASE("with reads first a read overtakes the programs and erases of its class") {
  FlashTiming t = coarse();
  t.plane_order = PlaneOrder::reads_first;
  const auto overtakes = [&](const PageOp& y, const PageOp& x) {
    const Times done = play(t, {{read(0), 0_ps}, {y, 1_ps}, {x, 2_ps}}).done;
    return done[2] < done[1];
  };
  for (const bool classes : {false, true}) {
    if (classes) t.class_priority = {OpClass::gc};
    CHECK(overtakes(program(0), read(0)));
    CHECK(overtakes(erase(0), read(0)));
    CHECK_FALSE(overtakes(read(0), read(0)));
    CHECK_FALSE(overtakes(read(0), program(0)));
    CHECK_FALSE(overtakes(program(0), program(0)));
    CHECK_FALSE(overtakes(erase(0), program(0)));
    CHECK_FALSE(overtakes(program(0), erase(0)));
    CHECK(overtakes(program(0, OpClass::gc), read(0)) == !classes);  // a more urgent class keeps its turn
    CHECK(overtakes(read(0), program(0, OpClass::gc)) == classes);
  }
  t.class_priority = {};
  // The plane is free at 180: a read takes part at 180, at 181 the program has gone.
  CHECK(play(t, {{read(0), 0_ps}, {program(0), 1_ps}, {read(0), 180_ps}}).done[2] == 360_ps);
  CHECK(play(t, {{read(0), 0_ps}, {program(0), 1_ps}, {read(0), 181_ps}}).done[2] == 180_ps + 1074_ps + 180_ps);
  // Among planes the bus goes by the order of asking, and what runs is not interrupted.
  CHECK(play(t, {{program(0), 0_ps}, {read(2), 0_ps}}).done == Times{1074_ps, 74_ps + 180_ps});
  CHECK(play(t, {{program(0), 0_ps}, {read(0), 11_ps}}).done == Times{1074_ps, 1074_ps + 180_ps});
  // Suspension takes any read, as in the order of arrival.
  t.suspend = SuspendConfig{.kinds = Suspend::program, .latency = {}};
  CHECK(play(t, {{program(0), 0_ps}, {read(0), 500_ps}}).done[1] == 690_ps);
}

TEST_CASE("the bus prefers the more urgent class within a rank") {
  FlashTiming t = coarse();
  t.class_priority = {OpClass::host};
  const Timed ops{{read(0), 0_ps}, {read(2, OpClass::gc), 1_ps}, {read(4), 9_ps}, {read(6), 11_ps}};
  const Times urgent = play(t, ops).done;
  CHECK(urgent == Times{180_ps, 390_ps, 250_ps, 320_ps});
  t.class_priority = {};
  CHECK(play(t, ops).done == Times{180_ps, 250_ps, 320_ps, 390_ps});
}

TEST_CASE("a status poll ends programs and erases") {
  FlashTiming t = coarse();
  t.status_time = 4_ps;
  const Played p = play(t, {{program(0), 0_ps}, {read(0), 1_ps}});
  CHECK(p.done == Times{1078_ps, 1078_ps + 180_ps});
  CHECK(p.statistics.channels[0].status == 4_ps);
  CHECK(p.stages[0] == FlashStages{0_ps, 0_ps, 14_ps, 1000_ps, 64_ps, 0_ps});
  CHECK(play(t, {{erase(0), 0_ps}}).done == Times{5014_ps});
  // It waits for the bus: a data-out occupies it from 1065 to 1135.
  CHECK(play(t, {{program(0), 0_ps}, {read(2), 955_ps}}).done[0] == 1135_ps + 4_ps);
  t.plane_mode = PlaneMode::multi_plane;  // one for the die
  CHECK(play(t, {{program(0), 0_ps}, {program(1), 0_ps}}).done == Times{1152_ps, 1152_ps});
}

TEST_CASE("the bus turns to another package in package_select_time") {
  FlashTiming t = coarse();
  t.packages = PackagesConfig{.dies = 2, .select_time = 5_ps};
  // Planes 0 to 3 are in the first package, 4 to 7 in the second.
  CHECK(play(t, {{read(0), 0_ps}}).done == Times{180_ps});
  CHECK(play(t, {{read(0), 0_ps}, {read(2), 0_ps}}).done == Times{180_ps, 250_ps});
  const Played p = play(t, {{read(0), 0_ps}, {read(4), 0_ps}});
  CHECK(p.done == Times{110_ps + 5_ps + 70_ps, 185_ps + 5_ps + 70_ps});
  CHECK(p.statistics.channels[0].select == 15_ps);
  CHECK(p.stages[1] == FlashStages{0_ps, 10_ps + 60_ps, 15_ps, 100_ps, 75_ps, 0_ps});
}

TEST_CASE("the decoder takes one page after the other") {
  FlashTiming t = coarse();
  t.ecc_latency = 7_ps;
  t.ecc_bandwidth = Bandwidth{500'000'000'000};  // 128 ps a page
  const Played p = play(t, {{read(0), 0_ps}, {read(2), 0_ps}});
  CHECK(p.done == Times{180_ps + 128_ps + 7_ps, 180_ps + 256_ps + 7_ps});
  CHECK(p.statistics.decoder_busy[0] == 256_ps);
  CHECK(p.stages[1][at(FlashStage::ecc)] == 193_ps);
  CHECK(p.statistics.plane_busy[2] == 240_ps);  // the plane does not wait for it
}

TEST_CASE("the filter of a channel takes one page of attention after the other, when it is corrected") {
  FlashTiming t = coarse();
  t.ecc_latency = 7_ps;
  t.filter_bandwidth = Bandwidth{500'000'000'000};  // 128 ps a page
  const Played p = play(t, {{read(0, OpClass::attend), 0_ps}, {read(2, OpClass::attend), 0_ps}});
  CHECK(p.done == Times{180_ps + 7_ps + 128_ps, 180_ps + 7_ps + 256_ps});
  CHECK(p.statistics.filter_busy[0] == 256_ps);
  // The second page is corrected 70 ps after the first.
  CHECK(p.statistics.filter_waited == 128_ps - 70_ps);
  CHECK(p.stages[1][at(FlashStage::ecc)] == 7_ps + 58_ps + 128_ps);
  CHECK(p.statistics.plane_busy[2] == 240_ps);
  // Pages of others pass by, and what cannot be corrected is not filtered.
  CHECK(play(t, {{read(0), 0_ps}, {read(2, OpClass::gc), 0_ps}}).done == Times{187_ps, 257_ps});
  PageOp again = read(0, OpClass::attend);
  again.retries = 1;
  const Played retried = play(t, {{again, 0_ps}});
  CHECK(retried.done == Times{187_ps + 187_ps + 128_ps});
  CHECK(retried.statistics.filter_busy[0] == 128_ps);
  // A page keeps its buffer until it has passed.
  t.page_buffers = 1;
  const Played held = play(t, {{read(0, OpClass::attend), 0_ps}, {read(2, OpClass::attend), 0_ps}});
  CHECK(held.done == Times{315_ps, 315_ps + 70_ps + 7_ps + 128_ps});
  // The time until now is what it has been given less what it still has to do.
  CHECK(held.statistics.filter_busy_until(held.done[1] - 100_ps) == 156_ps);
}

}  // namespace
}  // namespace csdsim::nfc
