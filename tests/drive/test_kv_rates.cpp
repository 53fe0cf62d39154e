// Times of scores and fetches over long contexts, with the engine at the flash controllers and behind a switch.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "csd_model/firmware/peer_reads.h"
#include "csd_model/kv_rates.h"
#include "csd_model/page_schedule.h"
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

/// Pages of 16 KiB, in codewords of 4 KiB + 512 B.
csd_model::DriveConfig with_codewords(csd_model::DriveConfig drive) {
  drive.geometry.page_size = Bytes::kib(16);
  drive.block.codeword = drive.kv.codeword = Bytes::kib(4);
  drive.flash.codewords = nfc::CodewordsConfig{.size = Bytes{4096}, .parity = Bytes{512}};
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
  drives.push_back(with_codewords(scoring_drive()));
  for (const PeerReadConfig& reads :
       {PeerReadConfig{}, PeerReadConfig{.request_size = Bytes::kib(64), .outstanding = 1},
        PeerReadConfig{.request_size = Bytes::kib(16), .outstanding = 4},
        PeerReadConfig{.request_size = Bytes::kib(8), .outstanding = 1}})
    drives.push_back(with_codewords(behind_switch(reads)));
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

TEST_CASE("scores in chunks take what as many shorter sequences take, and a chunk above the sequence changes nothing") {
  csd_model::DriveConfig drive = scoring_drive();
  drive.engine.scoring.fp16_lanes = 6;
  const auto time = [&](std::uint32_t sequences, double tokens, std::uint32_t chunk) {
    const csd_model::AttentionShape shape{.heads = 32, .sequences = sequences, .tokens = tokens};
    return scoring_time(drive, shape, ScorePrecision::fp16, chunk);
  };
  CHECK(time(1, 8192, 2048) == Approx(time(4, 2048, 0)));
  CHECK(time(1, 8192, 2048) < 0.999 * time(1, 8192, 0));
  CHECK(time(1, 8192, 16384) == time(1, 8192, 0));
}

TEST_CASE(
    "only tokens of full pages are read from flash, and those that fill a page are programmed before the next scores") {
  csd_model::DriveConfig drive = scoring_drive();
  constexpr double kRows = 16;  // of a page of 4 KiB
  const double sense = seconds(drive.flash.read_latency);
  const auto shape = [](double tokens, double grown) {
    return csd_model::AttentionShape{.heads = 8, .sequences = 1, .tokens = tokens, .grown = grown};
  };
  const auto scores = [&](double tokens, double grown) {
    return scoring_time(drive, shape(tokens, grown), ScorePrecision::fp16, 0);
  };
  CHECK(scores(kRows - 1, 0) < sense);
  CHECK(scores(kRows, 0) > sense);
  // A sequence that has grown from 3 to 4 pages had 3 of them all the time, one that has grown from 2 had 2.5 of them.
  const auto rows = [&](double tokens, double grown) {
    return fetching_time(drive, shape(0, grown), std::vector<csd_model::RandomPicks>{{tokens, tokens}});
  };
  const double all = rows(4 * kRows, 0);
  CHECK(rows(4 * kRows, kRows) < all);
  CHECK(rows(4 * kRows, 2 * kRows) < rows(4 * kRows, kRows));
  CHECK(rows(kRows - 1, 0) < sense);

  const csd_model::Storing storing = storing_of(drive, shape(4 * kRows + 3, kRows + 8));
  CHECK(storing.share == Approx(2 / (kRows + 8)));
  CHECK(storing.seconds == Approx(2 * seconds(drive.flash.program_latency)));
  CHECK(storing_of(drive, shape(4 * kRows + 3, 3)).share == 0);
  CHECK(storing_of(drive, shape(4 * kRows, 0)).share == 0);
}

TEST_CASE("rates in closed form are those of the simulation: fetches") {
  constexpr std::uint16_t kHeads = 32;
  constexpr std::uint32_t kTokens = 4096;
  std::vector<csd_model::DriveConfig> drives{scoring_drive(), behind_switch({})};
  drives.push_back(scoring_drive());
  drives.back().link.bandwidth = Bandwidth{20'000'000'000};
  drives.back().link.generation = drives.back().link.lanes = {};
  for (int i = 0; i < 3; ++i) drives.push_back(with_codewords(drives[i]));
  for (const csd_model::DriveConfig& drive : drives)
    for (const std::uint32_t rows : {1u, 3u, 16u}) {
      CHECK(rows_fetched(drive, 128) == 16);
      // A page of 16 KiB has four groups of codewords, of which only the first is wanted: as many reads of four times
      // as many tokens.
      const auto of_page = static_cast<std::uint32_t>(drive.geometry.page_size.value / 256);
      LongContext host(drive, kHeads, kTokens * of_page / 16);
      const KvRequestShape shape{.head_dim = 128, .group = 1, .tokens = kTokens};
      const double rate = static_cast<double>(2 * host.key_bytes()) * rows / of_page / seconds(host.fetch(rows));
      CAPTURE(&drive - drives.data(), rows, rate);
      CHECK(per_second(fetch_rate(drive, shape, rows)) == Approx(rate).epsilon(0.05));
    }
}

TEST_CASE("tokens that are stored during attention take the programs of their pages, over all planes") {
  csd_model::DriveConfig drive = scoring_drive();
  // The flash alone takes time.
  drive.engine.macs_per_cycle = drive.engine.softmax_per_cycle = 1 << 20;
  drive.engine.jobs_in_flight = 1024;
  csd_model::AttentionShape shape{.heads = 32, .sequences = 2, .tokens = 4096};
  const double carrying =
      seconds(drive.flash.command_time + drive.flash.data_out_setup) + 4096 / per_second(drive.flash.channel_bandwidth);
  const double sensing = seconds(drive.flash.read_latency), reads = attention_time(drive, shape);
  // 32,768 pages of 4 KiB from 8 channels with 256 planes.
  CHECK(reads == Approx(32768 * std::max(carrying / 8, (sensing + carrying) / 256)).epsilon(0.02));
  shape.appended = 8;
  const double pages = 32 * 2 * 2 * 8 * 256 / 4096.0;
  CHECK(attention_time(drive, shape) - reads ==
        Approx(pages * (seconds(drive.flash.program_latency) + carrying) / 256));
}

namespace {

/// A drive of one plane, whose pages follow one another.
csd_model::DriveConfig one_plane() {
  csd_model::DriveConfig drive = scoring_drive();
  drive.geometry.channels = drive.geometry.dies_per_channel = drive.geometry.planes_per_die = 1;
  drive.pipeline_time = SimTime::microseconds(2);
  return drive;
}

double page_time(const csd_model::DriveConfig& drive) {
  return seconds(drive.flash.command_time + drive.flash.read_latency + drive.flash.data_out_setup) +
         4096 / per_second(drive.flash.channel_bandwidth);
}

/// Dense attention to `tokens` of 128 elements on a kernel.
double kernel_time(const csd_model::DriveConfig& drive, double tokens) {
  return (2 * tokens + tokens / drive.engine.softmax_per_cycle) / static_cast<double>(drive.engine.clock.hertz);
}

}  // namespace

TEST_CASE("few pages are followed one by one: through a plane, and side by side") {
  csd_model::DriveConfig drive = one_plane();
  REQUIRE(csd_model::PageSchedule::covers(drive));
  // Two jobs with two pages of K and two of V each. The kernel of the last one follows.
  const csd_model::AttentionShape four{.heads = 2, .tokens = 35};
  CHECK(attention_time(drive, four) == Approx(2e-6 + 8 * page_time(drive) + kernel_time(drive, 35)));
  // Of many planes, each has a page at most: K and V come together, and a channel carries one after another.
  drive = scoring_drive();
  const double data_out = page_time(drive) - seconds(drive.flash.command_time + drive.flash.read_latency);
  CHECK(attention_time(drive, {.heads = 1, .tokens = 16}) ==
        Approx(seconds(drive.pipeline_time) + page_time(drive) + kernel_time(drive, 16)));
  drive.geometry.channels = 1;
  CHECK(attention_time(drive, {.heads = 1, .tokens = 16}) ==
        Approx(seconds(drive.pipeline_time) + page_time(drive) + data_out + kernel_time(drive, 16)));
  // Half of the heads have no job slot before the others are through.
  drive = scoring_drive();
  drive.engine.jobs_in_flight = 1;
  CHECK(attention_time(drive, {.heads = 2, .tokens = 16}) ==
        Approx(seconds(drive.pipeline_time) + 2 * (page_time(drive) + kernel_time(drive, 16))));
}

TEST_CASE("attention behind reads of blocks: layers follow one another, flash takes what came first") {
  const csd_model::DriveConfig drive = one_plane();
  csd_model::AttentionShape shape{.heads = 2, .tokens = 16, .read = Bytes::kib(40)};
  const double attends = 4 * page_time(drive) + kernel_time(drive, 16);
  // The queries come while flash reads ten blocks, or after them.
  shape.queries_after = 5 * page_time(drive);
  CHECK(attention_time(drive, shape) == Approx(10 * page_time(drive) + attends));
  shape.queries_after = 12 * page_time(drive);
  CHECK(attention_time(drive, shape) == Approx(16 * page_time(drive) + 2e-6 + kernel_time(drive, 16)));
  // Outputs leave the drive behind the blocks, of which the first eight come together.
  shape.queries_after = 5 * page_time(drive);
  shape.way = 20 * page_time(drive) / (8 * 4096);
  CHECK(attention_time(drive, shape) == Approx(33 * page_time(drive)));
  shape.way /= 5;
  CHECK(attention_time(drive, shape) == Approx(10 * page_time(drive) + attends));
  shape.way = 0;
  // Without a page of its own, a layer still waits for what was read beside the one before.
  shape.tokens = 15;
  shape.queries_after = page_time(drive);
  CHECK(attention_time(drive, shape) == Approx(10 * page_time(drive)).epsilon(0.001));
}

TEST_CASE("behind the switch, tokens that fill no page cross after the blocks that have been read") {
  csd_model::DriveConfig drive = behind_switch({.command_time = {}, .bandwidth = Bandwidth{50'000'000}});
  // Flash is much faster than the link, on which all pages and all rows follow one another.
  const csd_model::AttentionShape shape{.heads = 4, .tokens = 31, .read = Bytes::mib(1), .queries_after = 10e-6};
  const double bytes = 1 << 20, rows = 4 * 2 * 31 * 256;
  CHECK(attention_time(drive, shape) == Approx((bytes + rows) / 50e6).epsilon(0.02));
  // Without reads, too, it carries the rows of each layer; a faster one is not waited for.
  CHECK(attention_time(drive, {.heads = 4, .tokens = 15}) == Approx(4 * 2 * 15 * 256 / 50e6));
  drive.peer_reads->bandwidth = Bandwidth{1'000'000'000'000};
  CHECK(attention_time(drive, {.heads = 4, .tokens = 15}) ==
        Approx(seconds(drive.pipeline_time) + 2 * kernel_time(drive, 15)));
}

TEST_CASE("behind the switch, rows that fill no page are ahead of the queries only as far as the link has been idle") {
  const csd_model::DriveConfig drive = behind_switch({.command_time = {}, .bandwidth = Bandwidth{50'000'000}});
  const double rows = 4 * 2 * 15 * 256 / 50e6;
  const auto after = [&](double idle) {
    return attention_time(drive, {.heads = 4, .tokens = 31, .queries_after = idle});
  };
  CHECK(after(2 * rows) == Approx(after(10 * rows)));
  CHECK(after(rows / 2) - after(10 * rows) == Approx(rows / 2).epsilon(0.05));
}

TEST_CASE("jobs of few pages wait for slots and planes, however many there are") {
  const csd_model::DriveConfig drive = behind_switch({.command_time = {}, .bandwidth = Bandwidth{3'200'000'000}});
  const csd_model::PageSchedule schedule(drive);
  csd_model::ScheduledAttention work{
      .heads = 40, .sequences = 32, .groups = 1, .kernel = kernel_time(drive, 16), .layers = 4};
  const csd_model::AttentionShape full{.heads = 40, .sequences = 32, .tokens = 16, .layers = 4};
  const csd_model::ScheduledTimes times = schedule.idle_before(work, 128);
  CHECK(attention_time(drive, full) == Approx(times.end));
  // 16 slots, each with two pages that flash reads side by side: more than the internal link needs.
  CHECK(times.end > 1280 * page_time(drive) / 16);
  CHECK(times.end > 1.2 * 2560 * 4096 / 3.2e9);
  // Rows that fill no page cross the link first, in the time in which it is idle.
  csd_model::AttentionShape more = full;
  more.tokens = 31;
  work.kernel = kernel_time(drive, 31);
  const csd_model::ScheduledTimes longer = schedule.idle_before(work, 128);
  const double rows = 1280.0 * 2 * 15 * 256 / 3.2e9;
  CHECK(attention_time(drive, more) == Approx(longer.end + rows - longer.link_idle).epsilon(0.002));
  more.queries_after = rows / 2;
  CHECK(attention_time(drive, more) == Approx(longer.end + rows / 2 - longer.link_idle).epsilon(0.002));
  // Above 4,096 pages, each further sequence takes as long as those before it.
  work.sequences = 128;
  CHECK(schedule.of_many(work, 128).end == Approx(schedule.idle_before(work, 128).end).epsilon(0.01));
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

TEST_CASE("codewords of a page pass the switch as they come, and a request may end inside a page") {
  constexpr std::uint32_t kPageTokens = 64;
  csd_model::DriveConfig at_controllers = with_codewords(scoring_drive());
  at_controllers.engine.intake = engine::Intake::phase;
  // At the controllers a page arrives whole. Behind the switch its last codeword follows it, or all four codewords
  // follow the first one.
  for (const Bandwidth ecc : {Bandwidth{}, Bandwidth{1'000'000'000}})
    for (const Bandwidth rate : {Bandwidth{2'400'000'000}, Bandwidth{900'000'000}}) {
      const PeerReadConfig reads{.command_time = SimTime::microseconds(7), .request_bandwidth = rate};
      csd_model::DriveConfig behind = with_codewords(behind_switch(reads));
      at_controllers.flash.ecc_bandwidth = behind.flash.ecc_bandwidth = ecc;
      const SimTime direct = LongContext(at_controllers, 1, kPageTokens).score(ScorePrecision::int8);
      const SimTime over = LongContext(behind, 1, kPageTokens).score(ScorePrecision::int8);
      const SimTime passes = transfer_time(Bytes::kib(4), rate);
      const Bandwidth slowest = ecc.bytes_per_second > 0 ? ecc : behind.flash.channel_bandwidth;
      const SimTime interval = transfer_time(Bytes{4608}, slowest);
      CAPTURE(ecc.bytes_per_second, rate.bytes_per_second);
      CHECK(over - direct == reads.command_time + passes + std::max(SimTime{}, 3 * (passes - interval)));
    }

  // Requests of half a page, one after another: each senses its page, moves two codewords, and the unit takes their 32
  // tokens in a cycle each at the end.
  const PeerReadConfig one{.request_size = Bytes::kib(8), .command_time = {}, .outstanding = 1};
  const csd_model::DriveConfig half = with_codewords(behind_switch(one));
  const SimTime request = half.flash.command_time + half.flash.read_latency + half.flash.data_out_setup +
                          transfer_time(Bytes{2 * 4608}, half.flash.channel_bandwidth) +
                          transfer_time(Bytes::kib(4), one.request_bandwidth);
  const SimTime few = LongContext(half, 1, 8 * kPageTokens).score(ScorePrecision::int8);
  {
    LongContext host(half, 1, 24 * kPageTokens);
    const double step = seconds(host.score(ScorePrecision::int8) - few) / 32;
    CHECK(step == Approx(seconds(request + cycles_time(kPageTokens / 2, half.engine.clock))).epsilon(0.002));
    CHECK(host.drive().peer_reads()->stats().requests == 48);
    CHECK(host.drive().peer_reads()->stats().bytes == host.key_bytes());
  }

  // Pages of a request on different channels pass in the order in which their codewords come, not page after page.
  const PeerReadConfig wide{.request_size = Bytes::kib(128), .outstanding = 1};
  const csd_model::DriveConfig eight = with_codewords(behind_switch(wide));
  const SimTime all = LongContext(eight, 1, 8 * kPageTokens).score(ScorePrecision::int8);
  const SimTime single = LongContext(eight, 1, kPageTokens).score(ScorePrecision::int8);
  const SimTime first = transfer_time(Bytes{4608}, eight.flash.channel_bandwidth);
  const SimTime passing = first + 32 * transfer_time(Bytes::kib(4), wide.request_bandwidth);
  const SimTime of_one = 4 * first + transfer_time(Bytes::kib(4), wide.request_bandwidth);
  constexpr std::uint32_t kMore = 7 * kPageTokens;  // whose scores cross the link to the host
  const SimTime after =
      cycles_time(kMore, eight.engine.clock) + transfer_time(Bytes{4 * kMore}, eight.link.payload_bandwidth());
  CHECK(seconds(all - single) == Approx(seconds(passing - of_one + after)).epsilon(0.005));
}

TEST_CASE("pages that cross the switch are counted once, whole, for scores and for fetches") {
  LongContext host(behind_switch({.request_size = Bytes::kib(64)}), 4, 4096);
  const csd_model::PeerReadStats& stats = host.drive().peer_reads()->stats();
  host.score(ScorePrecision::int4);
  CHECK(host.drive().peer_reads()->requests_in_flight() == 0);
  CHECK(stats.bytes == host.key_bytes());
  CHECK(stats.requests == host.key_bytes() / Bytes::kib(64).value);
  host.fetch(1);  // one row of each page of K and V
  CHECK(stats.bytes == 3 * host.key_bytes());
  CHECK(stats.busy == transfer_time(Bytes::kib(4), Bandwidth{3'200'000'000}) *
                          static_cast<std::int64_t>(3 * host.key_bytes() / 4096));
}

}  // namespace test_kv_rates
