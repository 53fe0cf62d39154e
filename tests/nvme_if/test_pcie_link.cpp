#include <catch2/catch.hpp>
#include <random>

#include "base/error.h"
#include "nvme_if/core/pcie_link.h"

namespace test_pcie_link {

using namespace csdsim;
using namespace csdsim::nvme;

namespace {
constexpr auto to_host = LinkDirection::to_host;
constexpr auto to_drive = LinkDirection::to_drive;

/// ceil(a * b / c) for numbers that fit.
std::int64_t ceil_ratio(unsigned __int128 a, unsigned __int128 b, unsigned __int128 c) {
  return static_cast<std::int64_t>((a * b + c - 1) / c);
}
}  // namespace

TEST_CASE("transfer time has a closed form with packet overhead") {
  // Generation 3, 4 lanes: 8 GT/s * 4 * 128/130 / 8 bytes per second; 4 KiB in 16 packets of 256 + 28 bytes.
  PcieLink link({.generation = 3, .lanes = 4});
  const std::uint64_t wire = 4096 + 16 * 28;
  CHECK(link.transfer_duration(Bytes{4096}).ps ==
        ceil_ratio(wire * 8, 1'000'000'000'000ull * 130, 8'000'000'000ull * 128 * 4));
  CHECK(link.transfer_duration(Bytes{4096}).ps == 1'153'750);
  // One byte more is one packet more.
  CHECK(link.transfer_duration(Bytes{4097}).ps ==
        ceil_ratio((wire + 29) * 8, 1'000'000'000'000ull * 130, 8'000'000'000ull * 128 * 4));
  CHECK(link.transfer_duration(Bytes{0}).ps == 0);
}

TEST_CASE("every generation has its rate") {
  const auto gigabytes = [](std::uint32_t generation, std::uint32_t lanes) {
    const PcieLink link({.generation = generation, .lanes = lanes, .tlp_overhead = {}, .dllp_overhead = {}});
    return 1.0 / link.transfer_duration(Bytes::gib(1)).seconds() * 1.073741824;
  };
  CHECK(gigabytes(1, 1) == Approx(0.25));
  CHECK(gigabytes(2, 1) == Approx(0.5));
  CHECK(gigabytes(3, 16) == Approx(15.7538).epsilon(1e-4));
  CHECK(gigabytes(4, 4) == Approx(7.8769).epsilon(1e-4));
  CHECK(gigabytes(5, 4) == Approx(15.7538).epsilon(1e-4));
  CHECK(gigabytes(6, 4) == Approx(32 * 236.0 / 256).epsilon(1e-4));
}

TEST_CASE("a direction is first come, first served: busy at t-1, free at t") {
  PcieLink link({.bandwidth = Bandwidth{1'400'000'000}});
  const SimTime duration{2'925'715};  // 4 KiB at 1.4 GB/s
  const LinkSlot a = link.reserve(to_host, Bytes{4096}, SimTime{100});
  CHECK(a.start.ps == 100);
  CHECK(a.end == SimTime{100} + duration);
  SECTION("one picosecond before the end it waits that picosecond") {
    const LinkSlot b = link.reserve(to_host, Bytes{3}, a.end - SimTime{1});
    CHECK(b.start == a.end);
    CHECK(b.end.ps == 100 + 2'927'858);  // 4099 bytes without a gap: 2927857.14 ps
  }
  SECTION("at the end it starts at once") {
    const LinkSlot b = link.reserve(to_host, Bytes{4096}, a.end);
    CHECK(b.start == a.end);
    CHECK(b.end == a.end + duration);
  }
  SECTION("the other direction is free") { CHECK(link.reserve(to_drive, Bytes{4096}, SimTime{100}).end == a.end); }
  CHECK(link.stats(to_host).payload_bytes >= 4096);
}

TEST_CASE("cutting a transfer at packet boundaries does not change its end") {
  const auto seed = Catch::rngSeed() + 1;
  INFO("seed " << seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 200; ++round) {
    const LinkConfig params{.generation = 1 + static_cast<std::uint32_t>(rng() % 6), .lanes = 1u << (rng() % 5)};
    PcieLink whole(params);
    PcieLink pieces(params);
    const std::uint64_t packets = 1 + rng() % 500;
    const SimTime start{static_cast<std::int64_t>(rng() % 1'000'000)};
    const LinkSlot expected = whole.reserve(to_host, Bytes{packets * 256}, start);
    LinkSlot last;
    for (std::uint64_t left = packets; left > 0;) {
      const std::uint64_t n = 1 + rng() % left;
      last = pieces.reserve(to_host, Bytes{n * 256}, start);
      left -= n;
    }
    REQUIRE(last.end == expected.end);
    REQUIRE(pieces.stats(to_host).busy == expected.end - start);
    REQUIRE(pieces.stats(to_host).packets == packets);
    REQUIRE(pieces.wire_bytes(to_host) == packets * (256 + 28));
  }
}

TEST_CASE("a read takes a request one way and the data the other") {
  const SimTime latency = SimTime::nanoseconds(150);
  PcieLink link({.generation = 3, .lanes = 4, .latency = latency});
  // One request packet without data: 28 bytes on the wire.
  const SimTime request{ceil_ratio(28 * 8, 1'000'000'000'000ull * 130, 8'000'000'000ull * 128 * 4)};
  const LinkSlot slot = link.reserve_read(Bytes{4096}, SimTime{0});
  CHECK(slot.start == request + latency);
  CHECK(slot.end == slot.start + link.transfer_duration(Bytes{4096}));
  CHECK(slot.arrival == slot.end + latency);
  CHECK(link.stats(to_host).packets == 8);  // 4096 / 512
  CHECK(link.wire_bytes(to_host) == 8 * 28);
  CHECK(link.stats(to_host).payload_bytes == 0);
  CHECK(link.stats(to_drive).payload_bytes == 4096);

  SECTION("a queued write does not hold a request back, but shares the wire") {
    PcieLink busy({.generation = 3, .lanes = 4, .latency = latency});
    const LinkSlot write = busy.reserve(to_host, Bytes::mib(1), SimTime{0});
    CHECK(busy.reserve_read(Bytes{4096}, SimTime{0}).arrival == slot.arrival);
    CHECK(busy.reserve(to_host, Bytes{0}, SimTime{0}).end > write.end);
  }
  SECTION("with an effective bandwidth requests are free") {
    const std::uint32_t tags = GENERATE(0u, 1u);
    PcieLink effective({.bandwidth = Bandwidth{1'000'000'000}, .outstanding_reads = tags, .latency = latency});
    const LinkSlot s = effective.reserve_read(Bytes{1000}, SimTime{0});
    CHECK(s.arrival == SimTime::nanoseconds(1000) + latency + latency);
    CHECK(effective.wire_bytes(to_host) == 0);
  }
}

TEST_CASE("reads in flight are bounded by tags: so much data comes in a round trip") {
  const SimTime latency = SimTime::nanoseconds(400);
  const auto link = [&](std::uint32_t tags, Bytes request = Bytes{512}) {
    return PcieLink(
        {.generation = 3, .lanes = 4, .max_read_request = request, .outstanding_reads = tags, .latency = latency});
  };
  const SimTime request{ceil_ratio(28 * 8, 1'000'000'000'000ull * 130, 8'000'000'000ull * 128 * 4)};
  const SimTime data = link(0).transfer_duration(Bytes{512});
  const SimTime round_trip = request + latency + data + latency;

  SECTION("one tag: one round trip after the other") {
    PcieLink one = link(1);
    const LinkSlot slot = one.reserve_read(Bytes{3 * 512 + 100}, SimTime{7});
    CHECK(slot.start == SimTime{7} + request + latency);
    CHECK(slot.arrival ==
          SimTime{7} + 3 * round_trip + request + latency + one.transfer_duration(Bytes{100}) + latency);
    CHECK(one.stats(to_drive).payload_bytes == 3 * 512 + 100);
    CHECK(one.stats(to_host).packets == 4);
    // The next read finds the tag taken until then, and free then.
    PcieLink again = one;
    CHECK(one.reserve_read(Bytes{512}, slot.arrival - SimTime{1}).arrival == slot.arrival + round_trip);
    CHECK(again.reserve_read(Bytes{512}, slot.arrival).arrival == slot.arrival + round_trip);
  }
  SECTION("the rate is that of the tags or that of the link, whichever is less") {
    constexpr std::uint64_t kSize = 1 << 20;
    SimTime before = SimTime::max();
    for (const std::uint32_t tags : {1u, 2u, 3u, 5u, 8u, 64u}) {
      PcieLink l = link(tags);
      const SimTime end = l.reserve_read(Bytes{kSize}, SimTime{0}).arrival;
      const double by_tags = static_cast<double>(round_trip.ps) * (kSize / 512) / tags;
      const double by_link = static_cast<double>(l.transfer_duration(Bytes{kSize}).ps);
      const double fixed = static_cast<double>(round_trip.ps);
      CHECK(static_cast<double>(end.ps) == Approx(std::max(by_tags, by_link)).margin(fixed));
      CHECK(end <= before);
      before = end;
    }
  }
  SECTION("enough tags are no bound at all, whatever the sizes and times") {
    WARN("seeds 1 .. 50");
    for (unsigned seed = 1; seed <= 50; ++seed) {
      INFO("seed " << seed);
      std::mt19937 rng(seed);
      PcieLink unlimited = link(0), enough = link(100'000);
      SimTime now{};
      for (int i = 0; i < 40; ++i) {
        const Bytes size{1 + rng() % 40'000};
        now += SimTime{static_cast<std::int64_t>(rng() % 20'000'000)};
        const LinkSlot a = unlimited.reserve_read(size, now), b = enough.reserve_read(size, now);
        REQUIRE(a.arrival == b.arrival);
        REQUIRE(a.start == b.start);
      }
    }
  }
}

TEST_CASE("link parameters out of range are the user's mistake") {
  CHECK_THROWS_AS(PcieLink({.generation = 0}), UserError);
  CHECK_THROWS_AS(PcieLink({.generation = 7}), UserError);
  CHECK_THROWS_AS(PcieLink({.lanes = 3}), UserError);
  CHECK_THROWS_AS(PcieLink({.max_payload = Bytes{100}}), UserError);
  CHECK_THROWS_AS(PcieLink({.max_read_request = Bytes{8192}}), UserError);
  CHECK_THROWS_AS(PcieLink({.latency = SimTime{-1}}), UserError);
  CHECK_THROWS_WITH(PcieLink({.generation = 7}), Catch::Contains("generation is 7"));
}

}  // namespace test_pcie_link
