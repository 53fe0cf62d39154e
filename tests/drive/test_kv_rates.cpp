// Times of scores and fetches over long contexts, with the engine at the flash controllers and behind a switch.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "csd_model/firmware/peer_reads.h"
#include "csd_model/kv_rates.h"
#include "tests/drive/long_context.h"

namespace test_kv_rates {

using namespace csdsim;
using namespace csdsim::test;
using csd_model::KvRequestShape;
using csd_model::PeerReadConfig;

namespace {

double seconds(SimTime t) { return static_cast<double>(t.ps) * 1e-12; }
double per_second(Bandwidth b) { return static_cast<double>(b.bytes_per_second); }

csd_model::DriveConfig behind_switch(const PeerReadConfig& reads) {
  csd_model::DriveConfig drive = scoring_drive();
  drive.peer_reads = reads;
  return drive;
}

}  // namespace

TEST_CASE("a long score takes the time of its pages on the channels, or of the scoring unit") {
  constexpr std::uint16_t kHeads = 32;
  constexpr std::uint32_t kTokens = 8192;
  for (const std::uint32_t lanes : {4u, 8u, 16u, 64u, 256u})
    for (const std::uint8_t group : std::initializer_list<std::uint8_t>{1, 4}) {
      csd_model::DriveConfig drive = scoring_drive();
      drive.engine.scoring.int8_lanes = lanes;
      LongContext host(drive, kHeads, kTokens);
      const double pages = kHeads * kTokens / 16.0;
      const double page = seconds(drive.flash.command_time + drive.flash.data_out_setup) +
                          4096 / per_second(drive.flash.channel_bandwidth);
      const double unit =
          std::ceil(double{kTokens} * 128 * group / lanes) * kHeads / static_cast<double>(drive.engine.clock.hertz);
      const double expected = std::max(pages / 8 * page, unit);
      CAPTURE(lanes, int{group}, expected);
      CHECK(seconds(host.score(ScorePrecision::int8, group)) == Approx(expected).epsilon(0.015));
    }
}

TEST_CASE("rates in closed form are those of the simulation: scores") {
  constexpr std::uint16_t kHeads = 32;
  constexpr std::uint32_t kTokens = 4096;
  std::vector<csd_model::DriveConfig> drives(3, scoring_drive());
  drives[0].engine.scoring.fp16_lanes = {};  // on the kernels
  drives[1].engine.scoring.fp16_lanes = 6;
  drives[2].geometry.planes_per_die = 1;
  drives[2].geometry.dies_per_channel = 2;  // too few planes for the channels
  for (const PeerReadConfig& reads :
       {PeerReadConfig{}, PeerReadConfig{.request_size = Bytes::kib(64), .outstanding = 1},
        PeerReadConfig{.request_size = Bytes::kib(16), .command_time = SimTime::microseconds(20), .outstanding = 4},
        PeerReadConfig{.request_size = Bytes::kib(4), .outstanding = 64}})
    drives.push_back(behind_switch(reads));
  for (const csd_model::DriveConfig& drive : drives)
    for (const std::uint8_t group : std::initializer_list<std::uint8_t>{1, 4}) {
      LongContext host(drive, kHeads, kTokens);
      const KvRequestShape shape{.head_dim = 128, .group = group, .tokens = kTokens};
      const double rate = static_cast<double>(host.key_bytes()) / seconds(host.score(ScorePrecision::fp16, group));
      CAPTURE(&drive - drives.data(), int{group}, rate);
      CHECK(per_second(scoring_rate(drive, shape, ScorePrecision::fp16)) == Approx(rate).epsilon(0.05));
    }
  CHECK_THROWS_AS(scoring_rate(csd_model::DriveConfig{}, {}, ScorePrecision::int8), UserError);
}

TEST_CASE("rates in closed form are those of the simulation: fetches") {
  constexpr std::uint16_t kHeads = 32;
  constexpr std::uint32_t kTokens = 4096;
  std::vector<csd_model::DriveConfig> drives{scoring_drive(), behind_switch({})};
  drives.push_back(scoring_drive());
  drives.back().link.bandwidth = Bandwidth{20'000'000'000};
  drives.back().link.generation = drives.back().link.lanes = {};
  for (const csd_model::DriveConfig& drive : drives)
    for (const std::uint32_t rows : {1u, 3u, 16u}) {
      LongContext host(drive, kHeads, kTokens);
      const KvRequestShape shape{.head_dim = 128, .group = 1, .tokens = kTokens};
      const double rate = static_cast<double>(2 * host.key_bytes()) * rows / 16 / seconds(host.fetch(rows));
      CAPTURE(&drive - drives.data(), rows, rate);
      CHECK(per_second(fetch_rate(drive, shape, rows)) == Approx(rate).epsilon(0.05));
    }
}

TEST_CASE("a request over the switch: command, flash, and its pages at the rate of one request") {
  constexpr std::uint32_t kPageTokens = 16;
  // Behind the switch, one page takes as long as at the controllers, and the command and the way over the link besides.
  const PeerReadConfig one{.request_size = Bytes::kib(4), .command_time = SimTime::microseconds(7), .outstanding = 1};
  csd_model::DriveConfig at_controllers = scoring_drive();
  at_controllers.engine.intake = engine::Intake::phase;
  const SimTime direct = LongContext(at_controllers, 1, kPageTokens).score(ScorePrecision::int8);
  const SimTime over = LongContext(behind_switch(one), 1, kPageTokens).score(ScorePrecision::int8);
  CHECK(over - direct == one.command_time + transfer_time(Bytes::kib(4), one.request_bandwidth));

  // One request after another: each takes the time of one page; the unit takes each token in a cycle at the end.
  const csd_model::DriveConfig drive = behind_switch(one);
  const SimTime page = one.command_time + drive.flash.command_time + drive.flash.read_latency +
                       drive.flash.data_out_setup + transfer_time(Bytes::kib(4), drive.flash.channel_bandwidth) +
                       transfer_time(Bytes::kib(4), one.request_bandwidth);
  const auto pages = [&](std::uint32_t n) {
    return LongContext(drive, 1, n * kPageTokens).score(ScorePrecision::int8);
  };
  const double step = seconds(pages(48) - pages(16)) / 32;
  CHECK(step == Approx(seconds(page + cycles_time(kPageTokens, drive.engine.clock))).epsilon(0.002));

  // Pages of one request leave flash side by side and cross one after another; requests share the link.
  const auto rate = [](const PeerReadConfig& reads, std::uint16_t heads, std::uint32_t tokens) {
    LongContext host(behind_switch(reads), heads, tokens);
    return static_cast<double>(host.key_bytes()) / seconds(host.score(ScorePrecision::int8));
  };
  PeerReadConfig large{.request_size = Bytes::mib(16), .outstanding = 1};
  CHECK(rate(large, 4, 65536) == Approx(2.4e9).epsilon(0.03));
  large.outstanding = 8;
  CHECK(rate(large, 32, 8192) == Approx(3.2e9).epsilon(0.03));
}

TEST_CASE("pages that cross the switch are counted once, whole, for scores and for fetches") {
  LongContext host(behind_switch({.request_size = Bytes::kib(64)}), 4, 4096);
  const csd_model::PeerReadStats& stats = host.drive().peer_reads()->stats();
  host.score(ScorePrecision::int4);
  CHECK(stats.bytes == host.key_bytes());
  CHECK(stats.requests == host.key_bytes() / Bytes::kib(64).value);
  host.fetch(1);  // one row of each page of K and V
  CHECK(stats.bytes == 3 * host.key_bytes());
  CHECK(stats.busy == transfer_time(Bytes::kib(4), Bandwidth{3'200'000'000}) *
                          static_cast<std::int64_t>(3 * host.key_bytes() / 4096));
}

}  // namespace test_kv_rates
