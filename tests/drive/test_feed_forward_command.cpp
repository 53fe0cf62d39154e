// The command feed_forward: its results against the host's, its errors, its bytes and its time.
#include <catch2/catch.hpp>
#include <set>

#include "attention_engine/core/engine_config.h"
#include "csd_model/firmware/dram_port.h"
#include "tests/drive/record_host.h"
#include "tests/ftl/faulty_media.h"

namespace test_feed_forward_command {

using namespace csdsim;
using namespace csdsim::test;
namespace status = nvme::status;
namespace flag = nvme::feed_forward_flag;

namespace {

double relative(double a, double b) { return std::abs(a - b) / b; }

/// Time of a command from its submission until the host sees its completion.
SimTime duration(RecordHost& host, FeedForwardCall& call) {
  const SimTime start = nvme::sim_now();
  REQUIRE(host.run_call(call) == status::success);
  return call.sent->at - start;
}

}  // namespace

TEST_CASE("records in any layout give the bits of the host's sum") {
  auto config = tiny_drive();
  config.fidelity = GENERATE(csd_model::Fidelity::fast, csd_model::Fidelity::at);
  RecordHost host(config);
  host.write_records(0, 256 << 10);
  const std::uint8_t bias = flag::bias, gated = flag::gated;
  std::vector<FeedForwardCall> calls;
  calls.push_back(host.call(1, 64, {bundled(0, 50, 64, 256)}));                                     // packed
  calls.push_back(host.call(3, 64, {bundled(0, 20, 64, 4096)}));                                    // a block each
  calls.push_back(host.call(2, 600, {bundled(4096, 7, 600, 2400), bundled(40962, 9, 600, 2402)}));  // cross pages
  calls.push_back(host.call(2, 64, {{.up = 0, .down = 65536, .count = 90, .stride = 128}}));        // matrices of rows
  calls.push_back(host.call(2, 64, {{.up = 896, .down = 70000, .count = 1}, {.up = 0, .down = 100, .count = 2}}, 0));
  calls.push_back(host.call(2, 64, {bundled(0, 50, 64, 384, 3)}, bias | gated));
  calls.back().op.activation = nvme::NeuronActivation::silu;
  calls.back().op.threshold = 0.02f;
  calls.push_back(host.call(1, 64, {bundled(0, 50, 64, 384, 3)}, gated));
  calls.back().op.threshold = 0.1f;
  for (FeedForwardCall& c : calls) {
    CAPTURE(&c - calls.data());
    REQUIRE(host.run_call(c) == status::success);
    CHECK(host.result(c) == host.expected(c));
    CHECK(std::ranges::any_of(host.result(c), [](float v) { return v != 0; }));
  }
  CHECK(host.integrity_errors() == 0);
}

TEST_CASE("one changed bit of a record changes the result, and blocks that were never written hold zeros") {
  RecordHost host(tiny_drive());
  host.write_records(0, 64 << 10);
  FeedForwardCall call = host.call(1, 64, {bundled(0, 50, 64, 256)});
  REQUIRE(host.run_call(call) == status::success);
  const std::vector<float> before = host.result(call);
  // The down row of a neuron that fires.
  host.image[256 * 3 + 128] ^= std::byte{0x40};
  CHECK(host.expected(call) != before);

  FeedForwardCall unwritten = host.call(1, 64, {bundled(1 << 20, 50, 64, 256)});
  REQUIRE(host.run_call(unwritten) == status::success);
  CHECK(host.result(unwritten) == std::vector<float>(64, 0.0f));
}

TEST_CASE("random commands beside writes and attention: right bits, every page read once, bytes and work add up") {
  WARN("seeds 1 .. 24");
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "feed-forward");
    auto config = tiny_drive();
    config.fidelity = rng.below(2) == 0 ? csd_model::Fidelity::fast : csd_model::Fidelity::at;
    config.flash.page_buffers = static_cast<std::uint32_t>(rng.below(3));
    config.engine.kernels = static_cast<std::uint32_t>(1 + rng.below(3));
    config.engine.jobs_in_flight = static_cast<std::uint32_t>(1 + rng.below(8));
    config.engine.overlap_flash = rng.below(3) != 0;
    if (rng.below(2) == 0) config.dram_bandwidth = Bandwidth{500'000'000};
    if (rng.below(2) == 0) config.write_buffer = Bytes::kib(64);
    if (rng.below(2) == 0) config.lookup_time = SimTime::nanoseconds(300);
    if (rng.below(3) == 0) config.map_cache = Bytes{8 * 40};
    if (rng.below(2) == 0) config.engine.buffer_memory = engine::EngineMemory::dram;
    RecordHost host(config, seed);
    constexpr std::uint64_t kRecords = 512 << 10, kOther = 256 << 10;
    host.write_records(0, kRecords);
    REQUIRE(host.create(1, 1, 2) == status::success);
    REQUIRE(host.append(1, 0, 0, 200, 0, 2) == status::success);

    std::vector<FeedForwardCall> calls;
    std::vector<DriveHost::Attend> attends;
    std::uint64_t macs = 0, neurons = 0;
    for (int i = 0; i < 12; ++i) {
      const auto width = static_cast<std::uint16_t>(1 + rng.below(700));
      const bool gated = rng.below(2) == 0;
      const std::uint32_t record = width * (gated ? 6u : 4u);
      std::vector<nvme::NeuronRun> runs;
      for (std::uint64_t r = 1 + rng.below(6); r > 0; --r) {
        const auto count = static_cast<std::uint32_t>(1 + rng.below(8));
        const auto stride = static_cast<std::uint32_t>(record + 2 * rng.below(500));
        const std::uint64_t first = 2 * rng.below((kRecords - std::uint64_t{count} * stride) / 2);
        runs.push_back(bundled(first, count, width, stride, gated ? 3 : 2));
        if (rng.below(2) == 0) runs.back().down = 2 * rng.below((kRecords - std::uint64_t{count} * stride) / 2);
      }
      std::uint8_t flags = gated ? flag::gated : std::uint8_t{0};
      if (rng.below(2) == 0) flags |= flag::bias;
      calls.push_back(host.call(static_cast<std::uint16_t>(1 + rng.below(4)), width, std::move(runs), flags));
      if (rng.below(2) == 0) calls.back().op.activation = nvme::NeuronActivation::silu;
      macs += std::uint64_t{calls.back().op.neurons} * calls.back().op.tokens * width * (gated ? 3 : 2);
      neurons += calls.back().op.neurons;
    }
    const engine::EngineStats before = *host.drive().engine_stats();
    for (FeedForwardCall& c : calls) {
      const auto queue = static_cast<std::uint16_t>(1 + rng.below(4));
      host.send_call(c, queue);
      if (rng.below(2) == 0) {
        attends.push_back(host.prepare_attend(0, {heads_of(1, 199, 0, 2)}));
        host.send_attend(attends.back(), queue);
      }
      if (rng.below(2) == 0) host.send_records(kRecords + 4096 * rng.below(8), kOther / 8, queue);
    }
    DriveHost::settle();
    for (FeedForwardCall& c : calls) {
      REQUIRE(c.sent->done);
      REQUIRE(c.sent->status == status::success);
      CHECK(host.result(c) == host.expected(c));
    }
    for (const DriveHost::Attend& a : attends) {
      REQUIRE(a.sent->status == status::success);
      CHECK(host.error(a) < kOutputTolerance);
    }
    const engine::EngineStats& after = *host.drive().engine_stats();
    CHECK(after.neuron_macs - before.neuron_macs == macs);
    CHECK(after.neurons - before.neurons == neurons);
    CHECK(after.macs - before.macs == macs + attends.size() * 2 * 2 * 200 * 16);
    CHECK(after.record_bytes.value == after.record_pages * 1024);
    CHECK(host.integrity_errors() == 0);
    CHECK(host.driver().issued() == host.driver().completed());
  }
}

TEST_CASE("a command sees what was acknowledged before it, also from the write buffer") {
  auto config = tiny_drive();
  config.write_buffer = Bytes::kib(256);
  config.dram_bandwidth = Bandwidth{1'000'000'000};
  config.flush = {.policy = csd_model::FlushPolicy::idle, .threshold = {}, .idle_time = SimTime::milliseconds(5)};
  RecordHost host(config);
  std::vector<SentPtr> writes = host.send_records(0, 32 << 10);
  while (!writes.back()->done) DriveHost::run_for(SimTime::microseconds(5));
  FeedForwardCall call = host.call(1, 64, {bundled(0, 100, 64, 256)});
  host.send_call(call);
  while (!call.sent->done) DriveHost::run_for(SimTime::microseconds(5));
  CHECK(call.sent->status == status::success);
  CHECK(host.result(call) == host.expected(call));
  // All of it was in the buffer: 25 pages of 1 KiB out of DRAM, none out of flash.
  CHECK(host.drive().dram_port().bytes(csd_model::DramTraffic::records) == Bytes{25 * 1024});
  CHECK(host.drive().engine_stats()->record_pages == 0);
  // And out of flash once they are there, past DRAM.
  DriveHost::settle();
  REQUIRE(host.run_call(call) == status::success);
  CHECK(host.result(call) == host.expected(call));
  CHECK(host.drive().engine_stats()->record_pages == 25);
  CHECK(host.drive().dram_port().bytes(csd_model::DramTraffic::records) == Bytes{25 * 1024});
}

TEST_CASE("map entries in flash are read first, and cost time") {
  const auto time = [](Bytes cache) {
    auto config = tiny_drive();
    config.map_cache = cache;
    RecordHost host(config);
    host.write_records(0, 512 << 10);
    FeedForwardCall call = host.call(1, 64, {bundled(0, 100, 64, 256)});
    const SimTime taken = duration(host, call);
    CHECK(host.result(call) == host.expected(call));
    return taken;
  };
  CHECK(time(Bytes{8 * 20}) > time(Bytes{}) + SimTime::microseconds(50));
}

TEST_CASE("bad commands get their status, and the drive works on") {
  auto config = tiny_drive();
  config.engine.buffer = Bytes::kib(16);
  RecordHost host(config);
  host.write_records(0, 64 << 10);
  const std::uint64_t capacity = host.drive().block_ftl().capacity().value;
  const std::uint64_t exported = capacity / 4096 * 4096;
  const auto status_of = [&](auto change) {
    FeedForwardCall c = host.call(2, 64, {bundled(0, 10, 64, 256), bundled(4096, 5, 64, 256)});
    change(c);
    const std::uint64_t jobs = host.drive().engine_stats()->feed_forward_jobs;
    const nvme::Status s = host.run_call(c);
    CHECK(host.drive().engine_stats()->feed_forward_jobs - jobs == (s.ok() ? 1 : 0));
    FeedForwardCall good = host.call(2, 64, {bundled(0, 10, 64, 256)});
    CHECK(host.run_call(good) == status::success);
    CHECK(host.result(good) == host.expected(good));
    return s;
  };
  using C = FeedForwardCall;
  CHECK(status_of([](C&) {}) == status::success);
  // Sizes of 0, and counts that do not fit.
  CHECK(status_of([](C& c) { c.op.tokens = 0; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.op.width = 0; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.op.runs = 0; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.op.neurons = 0; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.op.neurons = 14; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.op.neurons = 16; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.runs[1].count = 0; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.runs[1].gate = 2; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.runs[1].up = 1; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.runs[1].stride = 255; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.op.activation = nvme::NeuronActivation{2}; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.op.flags |= 4; }) == status::invalid_field);
  CHECK(status_of([](C& c) { c.op.threshold = std::numeric_limits<float>::quiet_NaN(); }) == status::invalid_field);
  // Records beyond the namespace; the last byte of it is still good.
  CHECK(status_of([&](C& c) { c.runs[1].down = exported; }) == status::lba_out_of_range);
  CHECK(status_of([&](C& c) { c.runs[1].up = ~std::uint64_t{1}; }) == status::lba_out_of_range);
  CHECK(status_of([&](C& c) { c.runs[1].stride = 0xFFFF'FFFE; }) == status::lba_out_of_range);
  const std::uint64_t last = capacity / 2 * 2 - 128;
  CHECK(status_of([&](C& c) { c.runs[1] = {.up = last, .down = last, .count = 5}; }) == status::success);
  CHECK(status_of([&](C& c) { c.runs[1] = {.up = last, .down = last + 2, .count = 5}; }) == status::lba_out_of_range);
  // 16 KiB of buffer hold x and y of 2,048 elements.
  CHECK(status_of([&](C& c) { c = host.call(4, 512, {bundled(0, 3, 512, 2048)}); }) == status::success);
  CHECK(status_of([&](C& c) { c = host.call(4, 513, {bundled(0, 3, 513, 2052)}); }) == status::engine_buffer_exceeded);
  CHECK(status_of([&](C& c) { c = host.call(33, 64, {bundled(0, 3, 64, 256)}); }) == status::engine_buffer_exceeded);
  CHECK(nvme::status_name(status::engine_buffer_exceeded) == "engine_buffer_exceeded");
}

TEST_CASE("a page that cannot be corrected fails the command, after its pages were read") {
  ftl::test::FaultyMedia media(3);
  auto config = tiny_drive();
  config.faults = &media;
  RecordHost host(config);
  host.write_records(0, 64 << 10);
  FeedForwardCall call = host.call(1, 64, {bundled(0, 100, 64, 256)});
  media.uncorrectable = 0.2;
  const SimTime start = nvme::sim_now();
  CHECK(host.run_call(call) == status::unrecovered_read_error);
  CHECK(call.sent->at - start > config.flash.read_latency);
  media.uncorrectable = 0;
  REQUIRE(host.run_call(call) == status::success);
  CHECK(host.result(call) == host.expected(call));
}

TEST_CASE("a drive with an engine that cannot do it does not offer the command") {
  DriveHost host;
  CHECK(host.drive().controller().params().controller.feed_forward);
  auto params = host.drive().controller().params().controller;
  params.feed_forward = false;
  const nvme::FeedForward op{.tokens = 1, .width = 8, .runs = 1, .neurons = 1};
  CHECK(nvme::decode_io(nvme::encode(kNamespace, op), params).status == status::invalid_opcode);
  params.feed_forward = true;
  CHECK(nvme::decode_io(nvme::encode(kNamespace, op), params).status.ok());
  auto large = params;
  large.mdts = Bytes::kib(4);
  const nvme::FeedForward wide{.tokens = 1, .width = 1000, .runs = 1, .neurons = 1};
  CHECK(nvme::decode_io(nvme::encode(kNamespace, wide), large).status == status::invalid_field);
  CHECK(nvme::decode_io(nvme::encode(nvme::NamespaceId{2}, op), params).status == status::invalid_namespace);
}

TEST_CASE("only the list, the biases, x and y cross the link") {
  RecordHost host(timing_record_drive());
  host.write_records(0, 4 << 20);
  FeedForwardCall call = host.call(1, 1000, {bundled(0, 60, 1000, 4000), bundled(1 << 20, 3, 1000, 4096)});
  const auto bytes = [&](nvme::LinkDirection d) { return host.drive().link().stats(d).payload_bytes; };
  const std::uint64_t in = bytes(nvme::LinkDirection::to_drive), out = bytes(nvme::LinkDirection::to_host);
  REQUIRE(host.run_call(call) == status::success);
  // 2 runs of 32 bytes, 63 biases and 1,000 values of x, padded to 64 bytes; the command has 64, its PRP list 2
  // entries.
  CHECK(bytes(nvme::LinkDirection::to_drive) - in == 64 + 128 + 2048 + 64);
  CHECK(bytes(nvme::LinkDirection::to_host) - out == 4032 + 16);
}

TEST_CASE("a command that computes longer than it reads takes its multiply-accumulates over the kernels' rate") {
  for (const csd_model::Fidelity fidelity : {csd_model::Fidelity::fast, csd_model::Fidelity::at}) {
    auto config = timing_record_drive();
    config.fidelity = fidelity;
    config.engine.macs_per_cycle = 4;
    RecordHost host(config);
    host.write_records(0, 16 << 20);
    FeedForwardCall call = host.call(4, 4096, {bundled(0, 1000, 4096, 16384)});
    const double macs = 2.0 * 4096 * 4 * 1000;
    const double rate = 2 * 4 * 285e6;
    const double taken = duration(host, call).seconds();
    CHECK(taken >= macs / rate);
    CHECK(relative(taken, macs / rate) < 0.015);
    CHECK(host.drive().engine_stats()->neuron_macs == static_cast<std::uint64_t>(macs));
    CHECK(relative(host.drive().engine_stats()->neuron_busy.seconds(), macs / (rate / 2)) < 1e-6);
  }
}

TEST_CASE("a command that reads longer than it computes is never faster than the channels, and nearly as fast") {
  for (const csd_model::Fidelity fidelity : {csd_model::Fidelity::fast, csd_model::Fidelity::at}) {
    auto config = timing_record_drive();
    config.fidelity = fidelity;
    config.flash.channel_bandwidth = Bandwidth{100'000'000};
    RecordHost host(config);
    host.write_records(0, 32 << 20);
    // The pages of consecutive records stand on different channels.
    FeedForwardCall call = host.call(1, 4096, {bundled(0, 2000, 4096, 16384)});
    const std::uint64_t before = host.drive().flash_statistics().total_bytes().value;
    const double taken = duration(host, call).seconds();
    const std::uint64_t bytes = host.drive().flash_statistics().total_bytes().value - before;
    CHECK(bytes == 2000 * 16384);
    CHECK(host.drive().engine_stats()->record_bytes.value == bytes);
    const double bound = static_cast<double>(bytes) / (4 * 100e6);
    CHECK(taken >= bound);
    CHECK(relative(taken, bound) < 0.015);
  }
}

TEST_CASE("both models of the flash take the same time") {
  SimTime taken[2];
  for (const int at : {0, 1}) {
    auto config = timing_record_drive();
    config.fidelity = at == 1 ? csd_model::Fidelity::at : csd_model::Fidelity::fast;
    config.flash.read_jitter = SimTime::microseconds(20);
    RecordHost host(config);
    host.write_records(0, 8 << 20);
    FeedForwardCall call = host.call(2, 3000, {bundled(0, 200, 3000, 12000), bundled(5 << 20, 30, 3000, 16384)});
    taken[at] = duration(host, call);
  }
  CHECK(taken[0] == taken[1]);
}

TEST_CASE("weights and KV cache in one drive share channels and kernels: neither alone is as slow as both together") {
  const auto run = [](bool neurons, bool attention) {
    auto config = timing_record_drive();
    config.flash.channel_bandwidth = Bandwidth{100'000'000};
    config.kv_share = 0.5;
    RecordHost host(config);
    host.content.d = 128;
    host.write_records(0, 16 << 20);
    REQUIRE(host.create(1, 1, 8, nvme::create_flag::token_major) == status::success);
    for (std::uint32_t t = 0; t < 2048; t += 256) REQUIRE(host.append(1, 0, t, 256, 0, 8) == status::success);
    DriveHost::settle();
    const SimTime start = nvme::sim_now();
    const std::uint64_t before = host.drive().flash_statistics().total_bytes().value;
    SimTime end = start;
    FeedForwardCall call = host.call(1, 4096, {bundled(0, 600, 4096, 16384)});
    DriveHost::Attend attend = host.prepare_attend(0, {heads_of(1, 2047, 0, 8)});
    if (neurons) host.send_call(call, 1);
    if (attention) host.send_attend(attend, 2);
    DriveHost::settle();
    for (const SentPtr& s : {call.sent, attend.sent})
      if (s && s->done) {
        CHECK(s->status == status::success);
        end = std::max(end, s->at);
      }
    const std::uint64_t bytes = host.drive().flash_statistics().total_bytes().value - before;
    const double taken = (end - start).seconds();
    CHECK(taken >= static_cast<double>(bytes) / 400e6);
    return std::pair{taken, bytes};
  };
  const auto [alone, record_bytes] = run(true, false);
  const auto [attention, kv_bytes] = run(false, true);
  const auto [both, bytes] = run(true, true);
  CHECK(bytes == record_bytes + kv_bytes);
  CHECK(both > std::max(alone, attention) * 1.3);
  CHECK(relative(both, static_cast<double>(bytes) / 400e6) < 0.05);
}

}  // namespace test_feed_forward_command
