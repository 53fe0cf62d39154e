// Every timing rule of FlashTimeline, at t - 1 ps and at t.
#include <catch2/catch.hpp>

#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "nfc/core/flash_timeline.h"

template <>
struct Catch::StringMaker<csdsim::SimTime> {
  static std::string convert(csdsim::SimTime t) { return std::to_string(t.ps) + " ps"; }
};

namespace csdsim::nfc {
namespace {

constexpr SimTime operator""_ps(unsigned long long v) { return {static_cast<std::int64_t>(v)}; }
constexpr SimTime kNever = SimTime::max();

/// Two channels of two dies of two planes, one page of 64 B a block; a byte a picosecond.
FlashGeometry small() {
  FlashGeometry g;
  g.channels = 2;
  g.dies_per_channel = 2;
  g.planes_per_die = 2;
  g.blocks_per_plane = 8;
  g.pages_per_block = 1;
  g.page_size = Bytes{64};
  return g;
}

FlashTiming coarse(BusArbitration arbitration = BusArbitration::command_first) {
  FlashTiming t;
  t.read_latency = 100_ps;
  t.program_latency = 1000_ps;
  t.erase_latency = 5000_ps;
  t.command_time = 10_ps;
  t.data_out_setup = 6_ps;
  t.ecc_latency = 7_ps;
  t.channel_bandwidth = {1'000'000'000'000};
  t.arbitration = arbitration;
  return t;
}

PageOp op(PageOpKind kind, std::uint32_t plane, std::uint32_t bytes = 64) {
  return {small().address(PlaneId{plane}, 0, 0), kind, OpClass::host, 0, bytes};
}
PageOp read(std::uint32_t plane, std::uint32_t bytes = 64) { return op(PageOpKind::read, plane, bytes); }
PageOp program(std::uint32_t plane) { return op(PageOpKind::program, plane); }
PageOp erase(std::uint32_t plane) { return op(PageOpKind::erase, plane, 0); }

struct Bench {
  FlashTimeline timeline;
  explicit Bench(const FlashTiming& timing = coarse()) : timeline(small(), timing) {}

  FlashTicket submit(const PageOp& page_op, SimTime at) { return timeline.submit({&page_op, 1}, at); }

  /// The next decision is at `t`: not made by a run up to t - 1 ps or to t, made by one up to t + 1 ps.
  void decides_at(SimTime t) {
    timeline.run(t - 1_ps);
    CHECK(timeline.next_decision() == t);
    timeline.run(t);
    CHECK(timeline.next_decision() == t);
    timeline.run(t + 1_ps);
    CHECK(timeline.front() == t);
    CHECK(timeline.next_decision() > t);
  }

  /// The next completion is that of `ticket`, due at `t` and not before.
  void completes_at(FlashTicket ticket, SimTime t) {
    std::vector<FlashCompletion> done;
    timeline.run(kNever);
    timeline.take_completions(t - 1_ps, done);
    CHECK(done.empty());
    timeline.take_completions(t, done);
    REQUIRE(done.size() == 1);
    CHECK(done[0].ticket == ticket);
    CHECK(done[0].at == t);
  }

  ChannelBusy busy(std::size_t channel) const { return timeline.statistics().channels[channel]; }
};

TEST_CASE("programs and erases count as array time while the array works") {
  for (const auto rules : {FlashTimeline::Rules::automatic, FlashTimeline::Rules::general}) {
    FlashTimeline timeline(small(), coarse(), rules);
    // Command 0 to 10, data 10 to 74, array 74 to 1074; command 10, array 10 to 5010 on the other channel.
    const PageOp ops[] = {program(0), erase(small().planes() / 2)};
    timeline.submit(ops, 0_ps);
    timeline.run(11_ps);
    const FlashStatistics& s = timeline.statistics();
    for (const auto& [now, programming, erasing] :
         {std::tuple{74_ps, 0_ps, 64_ps}, std::tuple{75_ps, 1_ps, 65_ps}, std::tuple{1074_ps, 1000_ps, 1064_ps},
          std::tuple{5010_ps, 1000_ps, 5000_ps}, std::tuple{9999_ps, 1000_ps, 5000_ps}}) {
      CHECK(s.array_time_until(now, PageOpKind::program) == programming);
      CHECK(s.array_time_until(now, PageOpKind::erase) == erasing);
    }
  }
}

TEST_CASE("a read asks, is granted, senses, asks again, transfers, frees its plane, is decoded") {
  Bench b;
  const FlashTicket first = b.submit(read(0), 1000_ps);
  const FlashTicket second = b.submit(read(0), 1000_ps);  // waits for the plane
  b.decides_at(1000_ps);                                  // command
  CHECK(b.busy(0).command == 10_ps);
  b.decides_at(1110_ps);  // command end 1010, tR end 1110: data-out
  CHECK(b.busy(0).data_out == 70_ps);
  CHECK(b.timeline.next_decision() == 1180_ps);  // plane free at 1180, the second asks then, not after ECC
  b.decides_at(1180_ps);
  CHECK(b.timeline.statistics().plane_busy[0] == 180_ps);
  b.completes_at(first, 1187_ps);
  b.decides_at(1290_ps);
  b.completes_at(second, 1367_ps);
  CHECK(b.timeline.next_event() == kNever);
  CHECK(b.timeline.statistics().plane_busy[0] == 360_ps);
}

TEST_CASE("an unloaded read takes the sum of its parts") {
  for (const std::uint32_t bytes : {1U, 63U, 64U}) {
    Bench b;
    const FlashTicket ticket = b.submit(read(5, bytes), 17_ps);
    b.completes_at(ticket, 17_ps + 10_ps + 100_ps + 6_ps + SimTime{bytes} + 7_ps);
  }
  const FlashGeometry geometry;
  const FlashTiming timing;
  FlashTimeline timeline(geometry, timing);
  const PageOp page{{12345}, PageOpKind::read, OpClass::host, 0, 4096};
  timeline.submit({&page, 1}, SimTime{});
  CHECK(timeline.run(kNever) == SimTime{290'000 + 50'000'000 + 30'000 + 2'925'715});
}

TEST_CASE("a program holds the bus for command and data, then the plane") {
  Bench b;
  const FlashTicket first = b.submit(program(0), 0_ps);
  const FlashTicket other_plane = b.submit(program(1), 0_ps);
  const FlashTicket same_plane = b.submit(read(0), 0_ps);
  b.decides_at(0_ps);
  CHECK(b.busy(0) == ChannelBusy{10_ps, 0_ps, 64_ps});
  b.decides_at(74_ps);  // bus free: the program of plane 1
  CHECK(b.busy(0) == ChannelBusy{20_ps, 0_ps, 128_ps});
  b.completes_at(first, 1074_ps);  // no ECC on programs
  b.decides_at(1074_ps);           // plane 0 free: its read
  b.completes_at(other_plane, 1148_ps);
  b.completes_at(same_plane, 1074_ps + 187_ps);
  CHECK(b.timeline.statistics().plane_busy[0] == 1074_ps + 180_ps);
}

TEST_CASE("an erase holds the bus for its command, then the plane") {
  Bench b;
  const FlashTicket first = b.submit(erase(0), 0_ps);
  b.submit(erase(1), 0_ps);
  const FlashTicket queued = b.submit(read(0), 0_ps);
  b.decides_at(0_ps);
  b.decides_at(10_ps);  // bus free
  CHECK(b.busy(0) == ChannelBusy{20_ps, 0_ps, 0_ps});
  b.completes_at(first, 5010_ps);
  b.decides_at(5010_ps);
  CHECK(b.timeline.statistics().plane_busy[0] == 5010_ps);
  std::vector<FlashCompletion> done;
  b.timeline.take_completions(5020_ps, done);
  b.completes_at(queued, 5010_ps + 187_ps);
  CHECK(b.timeline.statistics().total_bytes() == Bytes{64});
}

TEST_CASE("a plane that looks idle is busy until its program ends") {
  Bench b;
  const FlashTicket first = b.submit(program(0), 0_ps);
  b.timeline.run(500_ps);
  b.submit(read(0), 500_ps);
  CHECK(b.timeline.next_decision() == 1074_ps);
  b.completes_at(first, 1074_ps);
  b.decides_at(1074_ps);
}

TEST_CASE("channels and planes do not wait for each other") {
  Bench b;
  b.submit(read(0), 0_ps);
  b.submit(read(4), 0_ps);  // channel 1
  b.submit(read(1), 0_ps);  // channel 0, another plane: its command follows at once
  b.timeline.run(1_ps);
  CHECK(b.busy(0).command == 10_ps);
  CHECK(b.busy(1).command == 10_ps);
  b.decides_at(10_ps);
}

// A data-out asks at 110 and occupies [110, 180); another asks at 120 (plane 1); a command arrives at `command_at` on
// plane 2. Returns true if at 180 the command goes before the second data-out.
bool command_goes_first(BusArbitration arbitration, SimTime command_at) {
  Bench b(coarse(arbitration));
  b.submit(read(0), 0_ps);
  b.submit(read(1), 0_ps);
  b.timeline.run(150_ps);
  REQUIRE(b.timeline.front() == 110_ps);
  REQUIRE(b.timeline.next_decision() == 180_ps);
  b.submit(read(2), command_at);
  const SimTime command_before = b.busy(0).command;
  b.timeline.run(181_ps);
  REQUIRE(b.timeline.front() == 180_ps);
  return b.busy(0).command != command_before;
}

TEST_CASE("arbitration orders commands and data-outs among those that have asked by the grant") {
  CHECK(command_goes_first(BusArbitration::command_first, 150_ps));
  CHECK(command_goes_first(BusArbitration::command_first, 180_ps));   // asks at the very moment of the grant
  CHECK(!command_goes_first(BusArbitration::command_first, 181_ps));  // 1 ps too late
  CHECK(!command_goes_first(BusArbitration::fifo, 150_ps));           // the data-out asked at 120
  CHECK(!command_goes_first(BusArbitration::data_first, 150_ps));
}

// Plane 0 has its page ready at 110. A command on plane 1 occupies the bus over that moment; one on plane 2 asks at
// `command_at` and waits for the bus, which is free at 115.
bool data_goes_first(BusArbitration arbitration, SimTime command_at) {
  Bench b(coarse(arbitration));
  b.submit(read(0), 0_ps);
  b.submit(read(1), 105_ps);
  b.submit(read(2), command_at);
  b.timeline.run(106_ps);
  REQUIRE(b.timeline.front() == 105_ps);
  b.timeline.run(116_ps);
  REQUIRE(b.timeline.front() == 115_ps);
  return b.busy(0).data_out != 0_ps;
}

TEST_CASE("fifo compares the times of asking, and a tie goes to the operation submitted first") {
  CHECK(!data_goes_first(BusArbitration::fifo, 109_ps));
  CHECK(data_goes_first(BusArbitration::fifo, 110_ps));  // tie: plane 0 was submitted first
  CHECK(data_goes_first(BusArbitration::fifo, 111_ps));
  CHECK(data_goes_first(BusArbitration::data_first, 106_ps));
  CHECK(!data_goes_first(BusArbitration::command_first, 115_ps));
  CHECK(data_goes_first(BusArbitration::command_first, 116_ps));
}

TEST_CASE("data_first serves a data-out that asks at the moment of the grant, not one that asks 1 ps later") {
  for (const auto& [command_at, data_first] : {std::pair{100_ps, true}, std::pair{99_ps, false}}) {
    Bench b(coarse(BusArbitration::data_first));
    b.submit(read(0), 0_ps);        // page ready at 110
    b.submit(read(1), command_at);  // bus free at command_at + 10
    b.submit(read(2), command_at);  // asks for that moment too
    b.timeline.run(command_at + 1_ps);
    b.timeline.run(command_at + 11_ps);
    CHECK(b.timeline.front() == command_at + 10_ps);
    CHECK((b.busy(0).data_out != 0_ps) == data_first);
  }
}

TEST_CASE("within a rank the earlier ask goes first, ties by submission") {
  // Submitted first, asks last; two that ask together.
  Bench b;
  const FlashTicket late = b.submit(read(0), 6_ps);
  const FlashTicket busy = b.submit(read(1), 0_ps);
  const FlashTicket early = b.submit(read(2), 5_ps);
  const FlashTicket tie = b.submit(read(3), 5_ps);
  b.decides_at(0_ps);   // plane 1
  b.decides_at(10_ps);  // plane 2
  b.decides_at(20_ps);  // plane 3
  b.decides_at(30_ps);  // plane 0
  b.completes_at(busy, 110_ps + 77_ps);
  b.completes_at(early, 180_ps + 77_ps);
  b.completes_at(tie, 250_ps + 77_ps);
  b.completes_at(late, 320_ps + 77_ps);
}

TEST_CASE("a batch completes with its last operation, completions at one time come by ticket") {
  Bench b;
  const std::vector<PageOp> batch{read(0), read(4), read(0)};
  const FlashTicket three = b.timeline.submit(batch, 0_ps);
  b.completes_at(three, 360_ps + 7_ps);
  CHECK(b.timeline.waiting_ops() == 0);

  Bench d;  // the last operation to be done is not the last one that was decided
  const FlashTicket mixed = d.timeline.submit(std::vector{program(0), read(4)}, 0_ps);
  d.completes_at(mixed, 1074_ps);

  Bench c;
  const FlashTicket on_channel_1 = c.submit(read(4), 0_ps);
  const FlashTicket on_channel_0 = c.submit(read(0), 0_ps);
  std::vector<FlashCompletion> done;
  CHECK(c.timeline.run(kNever) == 187_ps);
  c.timeline.take_completions(187_ps, done);
  REQUIRE(done.size() == 2);
  CHECK(done[0].ticket == on_channel_1);
  CHECK(done[1].ticket == on_channel_0);
}

TEST_CASE("run stops at a completion that nobody has taken") {
  Bench b;
  b.submit(read(0), 0_ps);
  b.submit(read(4), 187_ps);
  b.submit(read(5), 186_ps);
  CHECK(b.timeline.run(kNever) == 187_ps);
  CHECK(b.timeline.front() == 186_ps);  // the command at 196 would be next, and 187 is taken first
  CHECK(b.timeline.next_event() == 187_ps);
  std::vector<FlashCompletion> done;
  b.timeline.take_completions(187_ps, done);
  b.timeline.run(197_ps);
  CHECK(b.timeline.front() == 196_ps);
}

TEST_CASE("work submitted behind the front asks at the front") {
  Bench b;
  b.submit(read(0), 1000_ps);
  b.timeline.run(1001_ps);
  b.submit(read(4), 3_ps);
  CHECK(b.timeline.next_decision() == 1000_ps);
}

TEST_CASE("jitter lengthens tR by a reproducible amount within its bound") {
  FlashTiming t = coarse();
  t.read_jitter = 50_ps;
  t.seed = 3;
  std::vector<int> histogram(51);
  for (std::uint64_t i = 0; i < 51'000; ++i) {
    const SimTime extra = read_time(t, 0, 0, i) - t.read_latency;
    REQUIRE(extra >= 0_ps);
    REQUIRE(extra <= 50_ps);
    ++histogram[static_cast<std::size_t>(extra.ps)];
  }
  for (const int count : histogram) CHECK(std::abs(count - 1000) < 160);  // 5 sigma
  CHECK(read_time(t, 0, 0, 7) == read_time(t, 0, 0, 7));
  FlashTiming other_seed = t;
  other_seed.seed = 4;
  int same = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) same += read_time(t, 0, 0, i) == read_time(other_seed, 0, 0, i) ? 1 : 0;
  CHECK(same < 100);
  int repeated = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) repeated += read_time(t, 0, 0, i) == read_time(t, 0, 0, i + 1) ? 1 : 0;
  CHECK(repeated < 100);

  Bench b(t);
  const FlashTicket first = b.submit(read(0), 0_ps);
  b.completes_at(first, 10_ps + read_time(t, 0, 0, 0) + 77_ps);
  const FlashTicket second = b.submit(read(1), 5000_ps);
  b.completes_at(second, 5010_ps + read_time(t, 0, 0, 1) + 77_ps);
}

TEST_CASE("a batch that is not accepted is not submitted") {
  Bench b;
  const std::vector<PageOp> out_of_range{read(0), read(8)};
  CHECK_THROWS_AS(b.timeline.submit(out_of_range, 0_ps), InternalError);
  CHECK_THROWS_AS(b.timeline.submit({}, 0_ps), InternalError);
  CHECK_THROWS_AS(b.submit(read(0, 65), 0_ps), InternalError);
  CHECK_THROWS_AS(b.submit(read(0, 0), 0_ps), InternalError);
  CHECK_THROWS_AS(b.submit(op(PageOpKind::program, 0, 0), 0_ps), InternalError);
  CHECK_THROWS_AS(b.submit({PhysicalPageAddress::invalid()}, 0_ps), InternalError);
  CHECK(b.timeline.waiting_ops() == 0);
  CHECK(b.timeline.next_event() == kNever);
}

TEST_CASE("parameters out of range are the user's mistake and are named") {
  const auto refuses = [](auto change, const std::string& name) {
    FlashGeometry g = small();
    FlashTiming t = coarse();
    change(g, t);
    CHECK_THROWS_AS(FlashTimeline(g, t), UserError);
    CHECK_THROWS_WITH(FlashTimeline(g, t), Catch::Contains(name));
  };
  refuses([](auto&, auto& t) { t.channel_bandwidth = {}; }, "channel_bandwidth");
  refuses([](auto&, auto& t) { t.read_latency = SimTime{-1}; }, "read_latency");
  refuses([](auto&, auto& t) { t.program_latency = SimTime{}; }, "program_latency");
  refuses([](auto&, auto& t) { t.erase_latency = SimTime{}; }, "erase_latency");
  refuses([](auto&, auto& t) { t.command_time = SimTime{-1}; }, "command_time");
  refuses([](auto&, auto& t) { t.data_out_setup = SimTime{-1}; }, "data_out_setup");
  refuses([](auto&, auto& t) { t.ecc_latency = SimTime{-1}; }, "ecc_latency");
  refuses([](auto&, auto& t) { t.read_jitter = SimTime{-1}; }, "read_jitter");
  refuses([](auto& g, auto&) { g.channels = 0; }, "channels");
  refuses([](auto& g, auto&) { g.dies_per_channel = 0; }, "dies_per_channel");
  refuses([](auto& g, auto&) { g.planes_per_die = 0; }, "planes_per_die");
  refuses([](auto& g, auto&) { g.blocks_per_plane = 0; }, "blocks_per_plane");
  refuses([](auto& g, auto&) { g.pages_per_block = 0; }, "pages_per_block");
  refuses([](auto& g, auto&) { g.page_size = {}; }, "page_size");
  refuses([](auto& g, auto&) { g.page_size = Bytes::gib(4); }, "page_size");
  refuses([](auto& g, auto&) { g.channels = g.dies_per_channel = 65536; }, "planes_per_die");
}

}  // namespace
}  // namespace csdsim::nfc
