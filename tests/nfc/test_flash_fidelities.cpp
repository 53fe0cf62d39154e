// The rules of test_flash_rules.cpp at t - 1 ps, t and t + 1 ps in both fidelities, by the plain and the general
// timeline.
#include <catch2/catch.hpp>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "played.h"

namespace test_flash_fidelities {

using namespace csdsim;
using namespace csdsim::nfc;

namespace {

/// A read takes 187 ps: 10 (command) + 100 (array) + 70 (transfer) + 7 (decoding).
FlashTiming decoding(BusArbitration arbitration = BusArbitration::command_first) {
  FlashTiming t = coarse();
  t.ecc_latency = 7_ps;
  t.arbitration = arbitration;
  return t;
}

FlashGeometry two_channels() {
  FlashGeometry g = small();
  g.channels = 2;
  g.dies_per_channel = 2;
  return g;
}

}  // namespace

TEST_CASE("in both fidelities a plane takes the next read when the last is out, before it is decoded") {
  for (const auto& [asks, starts] :
       {std::pair{1001_ps, 1180_ps}, {1179_ps, 1180_ps}, {1180_ps, 1180_ps}, {1181_ps, 1181_ps}})
    CHECK(play_all(decoding(), {{read(0), 1000_ps}, {read(0), asks}}).done == Times{1187_ps, starts + 187_ps});
  for (const std::uint32_t bytes : {1U, 63U, 64U}) {
    PageOp part = read(5);
    part.channel_bytes = bytes;
    CHECK(play_all(decoding(), {{part, 17_ps}}).done == Times{17_ps + 123_ps + SimTime{bytes}});
  }
}

TEST_CASE("in both fidelities a program holds the bus for command and data, an erase for its command") {
  // The bus, from another plane.
  for (const auto& [asks, starts] : {std::pair{73_ps, 74_ps}, {74_ps, 74_ps}, {75_ps, 75_ps}})
    CHECK(play_all(decoding(), {{program(0), 0_ps}, {read(2), asks}}).done == Times{1074_ps, starts + 187_ps});
  for (const auto& [asks, starts] : {std::pair{9_ps, 10_ps}, {10_ps, 10_ps}, {11_ps, 11_ps}})
    CHECK(play_all(decoding(), {{erase(0), 0_ps}, {read(2), asks}}).done == Times{5010_ps, starts + 187_ps});
  // The plane, also while nothing else waits for it.
  for (const auto& [asks, starts] :
       {std::pair{500_ps, 1074_ps}, {1073_ps, 1074_ps}, {1074_ps, 1074_ps}, {1075_ps, 1075_ps}})
    CHECK(play_all(decoding(), {{program(0), 0_ps}, {read(0), asks}}).done == Times{1074_ps, starts + 187_ps});
  for (const auto& [asks, starts] : {std::pair{5009_ps, 5010_ps}, {5010_ps, 5010_ps}, {5011_ps, 5011_ps}})
    CHECK(play_all(decoding(), {{erase(0), 0_ps}, {read(0), asks}}).done == Times{5010_ps, starts + 187_ps});
}

TEST_CASE("in both fidelities channels and planes do not wait for each other") {
  // Planes 4 to 7 are on the other channel. Plane 1 follows plane 0 on the bus.
  CHECK(play_all(decoding(), {{read(0), 0_ps}, {read(4), 0_ps}, {read(1), 0_ps}}, two_channels()).done ==
        Times{187_ps, 187_ps, 257_ps});
}

// A data-out occupies the bus from 110 to 180, another asks at 120, and a command at a time in between or later.
TEST_CASE("in both fidelities arbitration orders those that have asked by the grant") {
  const auto done = [](BusArbitration arbitration, SimTime command_at) {
    const Times all = play_all(decoding(arbitration), {{read(0), 0_ps}, {read(1), 0_ps}, {read(2), command_at}}).done;
    CHECK(all[0] == 187_ps);
    return std::pair{all[1], all[2]};
  };
  const std::pair command{190_ps + 77_ps, 290_ps + 77_ps}, data{180_ps + 77_ps, 360_ps + 77_ps};
  CHECK(done(BusArbitration::command_first, 179_ps) == command);
  CHECK(done(BusArbitration::command_first, 180_ps) == command);
  CHECK(done(BusArbitration::command_first, 181_ps) == data);
  CHECK(done(BusArbitration::fifo, 119_ps) == command);
  CHECK(done(BusArbitration::fifo, 120_ps) == data);  // a tie: submitted first
  CHECK(done(BusArbitration::fifo, 121_ps) == data);
  CHECK(done(BusArbitration::data_first, 119_ps) == data);
  CHECK(done(BusArbitration::data_first, 180_ps) == data);
}

TEST_CASE("in both fidelities data_first serves a data-out that asks at the grant, and none that asks 1 ps later") {
  const auto done = [](SimTime commands_at) {
    return play_all(decoding(BusArbitration::data_first),
                    {{read(0), 0_ps}, {read(1), commands_at}, {read(2), commands_at}})
        .done;
  };
  // The page of plane 0 is ready at 110; the bus is free at 110, at 109.
  CHECK(done(100_ps) == Times{187_ps, 287_ps, 367_ps});
  CHECK(done(99_ps) == Times{196_ps, 286_ps, 356_ps});
}

TEST_CASE("in both fidelities the earlier ask goes first, ties by submission") {
  // The second read of plane 0 asks at 180, when its plane and the bus are free.
  const auto done = [](SimTime other) {
    const Times all = play_all(decoding(), {{read(0), 0_ps}, {read(0), 1_ps}, {read(2), other}}).done;
    return std::pair{all[1], all[2]};
  };
  CHECK(done(179_ps) == std::pair{437_ps, 367_ps});
  CHECK(done(180_ps) == std::pair{367_ps, 437_ps});
  CHECK(done(181_ps) == std::pair{367_ps, 437_ps});
}

TEST_CASE("in both fidelities a batch is done with the last of its operations") {
  CHECK(play_all(decoding(), {{{read(0), read(4), read(0)}, 0_ps}}, two_channels()).done == Times{367_ps});
  CHECK(play_all(decoding(), {{{program(0), read(4)}, 0_ps}}, two_channels()).done == Times{1074_ps});
}

TEST_CASE("in both fidelities jitter is that of the operation's number") {
  FlashTiming t = decoding();
  t.read_jitter = 50_ps;
  t.seed = 3;
  CHECK(play_all(t, {{read(0), 0_ps}, {read(1), 5000_ps}}).done ==
        Times{10_ps + read_time(t, 0, 0, 0) + 77_ps, 5010_ps + read_time(t, 0, 0, 1) + 77_ps});
}

TEST_CASE("in fidelity at, too, programs and erases count as array time while the array works") {
  // Command 0 to 10, data 10 to 74, array 74 to 1074; command 10, array 10 to 5010 on the other channel.
  for (const auto& [now, programming, erasing] : {std::tuple{74_ps, 0_ps, 64_ps},
                                                  {75_ps, 1_ps, 65_ps},
                                                  {1074_ps, 1000_ps, 1064_ps},
                                                  {5010_ps, 1000_ps, 5000_ps},
                                                  {9999_ps, 1000_ps, 5000_ps}}) {
    csdsim::test::SyscFixture context;
    const FlashGeometry geometry = two_channels();
    Played played{Times(2), std::vector<FlashStages>(2), FlashStatistics(geometry)};
    const Timed steps{{program(0), 0_ps}, {erase(4), 0_ps}};
    AtFlash flash("flash", geometry, coarse());
    AtPlayer player("player", flash, steps, played);
    sc_core::sc_start(to_sc_time(now));
    CHECK(flash.statistics().array_time_until(now, PageOpKind::program) == programming);
    CHECK(flash.statistics().array_time_until(now, PageOpKind::erase) == erasing);
  }
}

}  // namespace test_flash_fidelities
