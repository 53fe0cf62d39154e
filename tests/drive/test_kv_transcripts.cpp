// The same stream of KV commands on drives that differ: what must not change an answer does not.
#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <numeric>

#include "tests/drive/drive_host.h"

namespace test_kv_transcripts {

using namespace csdsim;
using namespace csdsim::test;
using nvme::AttendMethod;
namespace status = nvme::status;

namespace {

/// A stream of commands that touches everything: appends, attends of all kinds with and without append, free and
/// create, several outstanding. Its outputs and the times at which the host saw its completions.
struct Transcript {
  std::vector<Half> outputs;
  std::vector<std::int64_t> times;
  std::uint64_t channel_bytes = 0;
  std::uint64_t integrity_errors = 0;
  std::int64_t attend_ps = 0;  ///< latencies of the attends, summed
};

Transcript play(const csd_model::DriveConfig& drive) {
  DriveHost host(drive);
  Transcript t;
  const auto finish = [&](const std::vector<SentPtr>& all) {
    DriveHost::settle();
    for (const SentPtr& s : all) {
      REQUIRE(s->done);
      REQUIRE(s->status == status::success);
      t.times.push_back(s->at.ps);
    }
  };
  std::vector<SentPtr> batch;
  for (std::uint32_t s = 1; s <= 2; ++s) REQUIRE(host.create(s, 2, 4) == status::success);
  for (std::uint32_t s = 1; s <= 2; ++s)
    for (std::uint32_t layer = 0; layer < 2; ++layer)
      for (std::uint32_t h = 0; h < 4; h += 2)
        batch.push_back(host.send_append(s, layer, 0, 150 + 20 * s, h, 2, static_cast<std::uint16_t>(1 + (s + h) % 4)));
  finish(batch);
  for (std::uint32_t step = 0; step < 30; ++step) {
    batch.clear();
    std::vector<DriveHost::Attend> attends;
    const SimTime start = nvme::sim_now();
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
      const std::uint32_t a = 170 + step, b = 190 + step;
      const bool sparf = (step + layer) % 3 != 0;
      const auto part = [&](std::uint32_t s, std::uint32_t token, std::uint16_t first, std::uint16_t heads) {
        return sparf ? sparse_heads_of(s, token, first, heads, 6, 40, 10, true)
                     : heads_of(s, token, first, heads, true);
      };
      const auto method = sparf ? AttendMethod::sparf : AttendMethod::dense;
      attends.push_back(host.prepare_attend(layer, {part(1, a, 0, 3), part(2, b, 1, 3)}, method, 2));
      attends.push_back(host.prepare_attend(layer, {part(2, b, 0, 1), part(1, a, 3, 1)}, method, 2));
    }
    for (std::size_t i = 0; i < attends.size(); ++i)
      host.send_attend(attends[i], static_cast<std::uint16_t>(1 + i % 4));
    for (const auto& a : attends) batch.push_back(a.sent);
    finish(batch);
    for (const auto& a : attends) {
      const auto out = host.output(a);
      t.outputs.insert(t.outputs.end(), out.begin(), out.end());
      t.attend_ps += (a.sent->at - start).ps;
    }
  }
  batch = {host.send(DriveHost::free_entry(1)), host.send(DriveHost::create_entry(1, 1, 2, 16))};
  finish(batch);
  t.channel_bytes = host.drive().totals().channel_bytes;
  t.integrity_errors = host.integrity_errors() + host.drive().kv_ftl().verify();
  return t;
}

}  // namespace

TEST_CASE("fidelity at: the same outputs at the same times as fast") {
  auto config = tiny_drive();
  config.flash.ecc_latency = SimTime::nanoseconds(700);
  config.lookup_time = SimTime::nanoseconds(150);
  const Transcript fast = play(config);
  config.fidelity = csd_model::Fidelity::at;
  const Transcript at = play(config);
  CHECK(at.outputs == fast.outputs);
  CHECK(at.times == fast.times);
  CHECK(at.channel_bytes == fast.channel_bytes);
  CHECK(fast.integrity_errors + at.integrity_errors == 0);
}

TEST_CASE(
    "what must not change an answer: channels, arbitration, tail policy, embedding group, filter, buffers, times") {
  const Transcript base = play(tiny_drive());
  CHECK(base.integrity_errors == 0);
  const auto same = [&](const std::function<void(csd_model::DriveConfig&)>& change) {
    auto config = tiny_drive();
    change(config);
    const Transcript t = play(config);
    CHECK(t.integrity_errors == 0);
    CHECK(t.outputs == base.outputs);
    return t;
  };
  SECTION("channels") {
    for (const std::uint32_t channels : {1u, 2u, 8u})
      same([&](auto& c) {
        c.geometry.channels = channels;
        c.geometry.blocks_per_plane = 32 * 4 / channels;
      });
  }
  SECTION("bus arbitration") {
    for (const auto arbitration : {nfc::BusArbitration::fifo, nfc::BusArbitration::data_first})
      same([&](auto& c) { c.flash.arbitration = arbitration; });
  }
  SECTION("tail policy and embedding group") {
    same([](auto& c) { c.kv.tail = ftl::TailPolicy::dram; });
    same([](auto& c) { c.kv.layout.embedding_group = 2; });
    same([](auto& c) {
      c.kv.layout.embedding_group = 16;
      c.kv.tail = ftl::TailPolicy::dram;
    });
  }
  SECTION("page size") {
    same([](auto& c) { c.geometry.page_size = Bytes::kib(4); });
  }
  SECTION("write buffer and engine") {
    same([](auto& c) { c.write_buffer = Bytes::mib(1); });
    same([](auto& c) { c.engine.jobs_in_flight = 1; });
    same([](auto& c) {
      c.engine.kernels = 5;
      c.engine.buffer = Bytes{8192};
    });
  }
  SECTION("a filter on the die moves fewer bytes") {
    CHECK(same([](auto& c) { c.filter = nfc::FilterLocation::die; }).channel_bytes < base.channel_bytes);
  }
  SECTION("lookups and firmware take time") {
    CHECK(same([](auto& c) { c.lookup_time = SimTime::microseconds(1); }).attend_ps > base.attend_ps);
    CHECK(same([](auto& c) { c.nvme.firmware_time = SimTime::microseconds(5); }).attend_ps > base.attend_ps);
  }
}

}  // namespace test_kv_transcripts
