// The filters of the flash controllers in the path of pages: what they are given, what they pass, and where they are.
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/drive/drive_host.h"

namespace test_kv_filter {

using namespace csdsim;
using namespace csdsim::test;

namespace {

constexpr std::uint32_t kDim = 16, kHeads = 2;
constexpr std::uint64_t kRow = 2 * kDim, kPage = 1024;  // 32 tokens; 64 tokens are a window of 2 embedding pages

struct Outcome {
  nfc::FilterCounts filters;  ///< counts of all channels
  std::uint64_t passed = 0;   ///< bytes of rows that filters have chosen
  std::vector<nfc::FilterCounts> by_channel;
  engine::EngineStats engine;
  std::uint64_t channel_bytes = 0;
  std::vector<Half> out;
};

/// One attend on a cache of `tokens`.
Outcome play(const csd_model::DriveConfig& config, std::uint32_t tokens, bool sparf) {
  DriveHost host(config);
  REQUIRE(host.create(1, 1, kHeads).ok());
  REQUIRE(host.append(1, 0, 0, tokens, 0, kHeads).ok());
  DriveHost::settle();
  const std::vector<nfc::FilterCounts> before = host.drive().filter().counts();
  const auto attend =
      sparf ? host.attend(0, {sparse_heads_of(1, tokens - 1, 0, kHeads, 6, 40, 10)}, nvme::AttendMethod::sparf)
            : host.attend(0, {heads_of(1, tokens - 1, 0, kHeads)});
  REQUIRE(attend.sent->status.ok());
  Outcome o;
  o.engine = *host.drive().engine_stats();
  o.out = host.output(attend);
  o.by_channel = host.drive().filter().counts();
  o.passed = host.drive().filter().passed_bytes();
  for (std::size_t c = 0; c < o.by_channel.size(); ++c) {
    REQUIRE((before[c].pages == 0));
    o.filters.pages += o.by_channel[c].pages;
    o.filters.bytes_in += o.by_channel[c].bytes_in;
    o.filters.bytes_out += o.by_channel[c].bytes_out;
  }
  const auto& bytes = host.drive().flash_statistics().bytes;
  o.channel_bytes = bytes[static_cast<std::size_t>(OpClass::attend)][static_cast<std::size_t>(PageOpKind::read)];
  return o;
}

csd_model::DriveConfig drive(nfc::FilterLocation location = nfc::FilterLocation::nfc) {
  csd_model::DriveConfig c = tiny_drive();
  c.filter = location;
  return c;
}

bool same(const std::vector<Half>& a, const std::vector<Half>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Half)) == 0;
}

}  // namespace

TEST_CASE("dense attention: all rows of all pages pass, those in controller DRAM do not come from a filter") {
  for (const std::uint32_t tokens : {20U, 32U, 64U, 100U, 333U}) {
    CAPTURE(tokens);
    const Outcome o = play(drive(), tokens, false);
    const std::uint64_t pages = kHeads * 2 * (tokens / 32), tail = kHeads * 2 * (tokens % 32) * kRow;
    CHECK(o.filters.pages == pages);
    CHECK(o.filters.bytes_in == pages * kPage);
    CHECK(o.filters.bytes_out == pages * kPage);
    CHECK(o.filters.bytes_in == o.channel_bytes);
    CHECK(o.filters.bytes_out + tail == o.engine.engine_bytes.value);
    // Pages of a head are on channels in turn.
    if (tokens == 333)
      for (const nfc::FilterCounts& c : o.by_channel) CHECK(c.pages == pages / 4);
  }
}

TEST_CASE("SparF: the filter passes the chosen components of embedding pages, the chosen rows, and tails row by row") {
  // Embedding pages hold the tokens of 2 whole windows. Of the 52 tokens after them, 32 are a whole token group; the
  // last 20 are only in the tail.
  const std::uint32_t tokens = 2 * 64 + 32 + 20;
  const Outcome o = play(drive(), tokens, true);
  CHECK(o.engine.embedding_pages + o.engine.token_pages_a + o.engine.token_pages_b == o.filters.pages);
  CHECK(o.engine.token_pages_a == kHeads);
  const std::uint64_t components = kHeads * 6 * (2 * 64) * 2, tail = kHeads * 32 * kRow;
  const std::uint64_t rows = o.filters.bytes_out - components - tail;
  CHECK(o.filters.bytes_in == o.filters.pages * kPage);
  // The newest 10 of 40 chosen tokens are in DRAM, as may be others.
  CHECK(rows % (2 * kRow) == 0);
  CHECK(rows <= kHeads * 2 * 30 * kRow);
  CHECK(rows >= kHeads * 2 * 20 * kRow);
  // The bytes that pass for real are those that were planned; keys that stand in for no window pass as whole pages.
  CHECK(o.passed == components + rows);
}

TEST_CASE("where the filter is changes what crosses the channel, not what passes nor what comes out") {
  const std::uint32_t tokens = 250;
  for (const bool sparf : {false, true}) {
    CAPTURE(sparf);
    const Outcome nfc = play(drive(), tokens, sparf), die = play(drive(nfc::FilterLocation::die), tokens, sparf),
                  none = play(drive(nfc::FilterLocation::none), tokens, sparf);
    CHECK(same(nfc.out, die.out));
    CHECK(same(nfc.out, none.out));
    CHECK(die.filters.bytes_out == nfc.filters.bytes_out);
    CHECK(die.channel_bytes == nfc.filters.bytes_out);
    CHECK(none.by_channel.empty());
    CHECK(none.channel_bytes == nfc.channel_bytes);
    CHECK(nfc.engine.engine_bytes == die.engine.engine_bytes);
    CHECK(none.engine.engine_bytes == nfc.engine.engine_bytes + Bytes{nfc.filters.bytes_in - nfc.filters.bytes_out});
    if (sparf) CHECK(nfc.filters.bytes_out < nfc.filters.bytes_in / 2);
  }
}

TEST_CASE("a slow filter holds up a head on one channel by the time of its pages") {
  csd_model::DriveConfig c = drive();
  c.geometry.channels = 1;
  c.geometry.blocks_per_plane = 128;
  const std::uint32_t tokens = 320;  // 40 pages of two heads
  const auto latency = [&] {
    DriveHost host(c);
    REQUIRE(host.create(1, 1, kHeads).ok());
    REQUIRE(host.append(1, 0, 0, tokens, 0, kHeads).ok());
    DriveHost::settle();
    const SimTime start = nvme::sim_now();
    return host.attend(0, {heads_of(1, tokens - 1, 0, kHeads)}).sent->at - start;
  };
  c.flash.filter_bandwidth = Bandwidth{1'000'000};
  const SimTime slow = latency();
  c.flash.filter_bandwidth = Bandwidth{2'000'000};
  // Twice as fast: 40 pages of 1 KiB take half of 1.024 ms each; nothing else changes.
  CHECK(slow - latency() == SimTime::microseconds(40 * 512));
}

}  // namespace test_kv_filter
