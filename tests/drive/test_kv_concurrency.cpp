// Commands that meet in the drive: a host may send them in any order, and each gets an answer that is right for some
// order of arrival.
#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <string_view>

#include "tests/drive/drive_host.h"

namespace test_kv_concurrency {

using namespace csdsim;
using namespace csdsim::test;
using nvme::AttendMethod;
namespace status = nvme::status;

namespace {

/// A sequence of 200 tokens in 2 heads, in flash.
struct Filled : DriveHost {
  explicit Filled(const csd_model::DriveConfig& config = tiny_drive()) : DriveHost(config) {
    REQUIRE(create(1, 1, 2) == status::success);
    REQUIRE(append(1, 0, 0, 200, 0, 2) == status::success);
  }
};

/// Long enough for a command to be in the engine, waiting for pages (tR is 50 us).
constexpr SimTime kIntoEngine = SimTime::microseconds(30);

}  // namespace

TEST_CASE("an append to heads that are being attended to waits for the attend") {
  const auto method = GENERATE(AttendMethod::dense, AttendMethod::sparf);
  Filled host;
  const auto descriptor =
      method == AttendMethod::dense ? heads_of(1, 199, 0, 2) : sparse_heads_of(1, 199, 0, 2, 8, 60, 20);
  auto running = host.prepare_attend(0, {descriptor}, method);
  host.send_attend(running);
  DriveHost::run_for(kIntoEngine);
  REQUIRE(!running.sent->done);
  const SentPtr append = host.send_append(1, 0, 200, 100, 0, 2, 2);
  CHECK(host.run(append) == status::success);
  CHECK(running.sent->status == status::success);
  CHECK(host.error(running) < kOutputTolerance);
  CHECK(append->at > running.sent->at);
  CHECK(host.tokens_of(1) == 300);
}

TEST_CASE("an append to other heads does not wait") {
  Filled host;
  auto running = host.prepare_attend(0, {heads_of(1, 199, 0, 1)});
  host.send_attend(running);
  DriveHost::run_for(kIntoEngine);
  REQUIRE(!running.sent->done);
  DriveHost::Attend other = host.prepare_attend(0, {heads_of(1, 200, 1, 1, true)});
  host.send_attend(other, 2);
  DriveHost::run_for(SimTime::microseconds(10));
  REQUIRE(!running.sent->done);
  CHECK(host.tokens_of(1, 0, 1) == 201);
  CHECK(host.run(other.sent) == status::success);
  CHECK(host.error(running) < kOutputTolerance);
  CHECK(host.error(other) < kOutputTolerance);
}

TEST_CASE("attends of successive tokens, sent without waiting for one another, see one token more each") {
  Filled host;
  std::vector<DriveHost::Attend> attends;
  for (std::uint32_t i = 0; i < 6; ++i) {
    const auto d = i % 2 == 0 ? heads_of(1, 200 + i, 0, 2, true) : sparse_heads_of(1, 200 + i, 0, 2, 8, 60, 20, true);
    attends.push_back(host.prepare_attend(0, {d}, i % 2 == 0 ? AttendMethod::dense : AttendMethod::sparf));
    host.send_attend(attends.back());
    DriveHost::run_for(SimTime::microseconds(15));
    // The next descriptor is checked against the cache when it arrives: its predecessor must have appended.
    while (host.tokens_of(1) != 201 + i) DriveHost::run_for(SimTime::microseconds(15));
  }
  DriveHost::settle();
  for (const auto& a : attends) {
    CHECK(a.sent->status == status::success);
    CHECK(host.error(a) < kOutputTolerance);
  }
}

TEST_CASE("an attend that waits after its first descriptor goes on with the second one's keys and values") {
  Filled host;
  REQUIRE(host.create(2, 1, 3) == status::success);
  REQUIRE(host.append(2, 0, 0, 40, 0, 3) == status::success);
  auto running = host.prepare_attend(0, {heads_of(1, 199, 0, 2)});
  host.send_attend(running);
  DriveHost::run_for(kIntoEngine);
  REQUIRE(!running.sent->done);
  auto waiting = host.prepare_attend(0, {heads_of(2, 40, 0, 3, true), heads_of(1, 200, 0, 2, true)});
  host.send_attend(waiting, 2);
  DriveHost::run_for(SimTime::microseconds(10));
  REQUIRE(!running.sent->done);
  CHECK(host.tokens_of(2) == 41);
  CHECK(host.tokens_of(1) == 200);
  CHECK(host.run(waiting.sent) == status::success);
  CHECK(host.error(waiting) < kOutputTolerance);
  // What it appended stays right.
  CHECK(host.error(host.attend(0, {heads_of(1, 200, 0, 2), heads_of(2, 40, 0, 3)})) < kOutputTolerance);
}

TEST_CASE("an append to heads that are being scored leaves the scores alone") {
  Filled host;
  const nvme::KvScore c{LayerId{0}, 1, AttendMethod::dense, 1, 16, 2, 400};
  const nvme::ScoreLayout layout = nvme::score_layout(c);
  const nvme::Segment b = host.buffer(layout.size);
  host.put(b.address, std::vector{heads_of(1, 199, 0, 2)});
  host.put(b.address + layout.q, host.content.rows(Content::query, 1, 0, 0, 2, 199, 1));
  const auto scores = [&] {
    return host.get<float>(b.address + layout.scores, (layout.size - layout.scores).value / sizeof(float));
  };
  REQUIRE(host.run(nvme::encode(kNamespace, c), b) == status::success);
  const std::vector<float> alone = scores();
  const SentPtr again = host.send(nvme::encode(kNamespace, c), b);
  DriveHost::run_for(kIntoEngine);
  REQUIRE(!again->done);
  const SentPtr append = host.send_append(1, 0, 200, 300, 0, 2, 2);
  CHECK(host.run(append) == status::success);
  CHECK(again->status == status::success);
  CHECK(scores() == alone);
}

TEST_CASE("a sequence may be freed while it is attended to or fetched from") {
  Filled host;
  auto running = host.prepare_attend(0, {sparse_heads_of(1, 199, 0, 2, 8, 60, 20)}, AttendMethod::sparf);
  host.send_attend(running);
  const nvme::KvFetch c{LayerId{0}, 16, 2, 2};
  const nvme::FetchLayout layout = nvme::fetch_layout(c);
  const nvme::Segment b = host.buffer(layout.size);
  host.put(b.address, std::vector{heads_of(1, 0, 0, 2)});
  host.put(b.address + layout.tokens, std::vector<std::uint32_t>{3, 150});
  const SentPtr fetch = host.send(nvme::encode(kNamespace, c), b, 2);
  DriveHost::run_for(kIntoEngine);
  REQUIRE(!running.sent->done);
  REQUIRE(!fetch->done);
  const SentPtr freed = host.send(DriveHost::free_entry(1), {}, 3);
  DriveHost::run_for(SimTime::microseconds(5));
  CHECK(freed->done);
  CHECK(host.attend(0, {heads_of(1, 199, 0, 2)}).sent->status == status::kv_unknown_sequence);
  CHECK(running.sent->status == status::success);
  CHECK(host.error(running) < kOutputTolerance);
  CHECK(fetch->status == status::success);
  CHECK(host.get<Half>(b.address + layout.k, 16) == host.content.row(Content::key, 1, 0, 0, 3));
  CHECK(host.drive().dram().used() == Bytes{});
  CHECK(host.integrity_errors() == 0);
}

TEST_CASE("a sequence is replaced by one of another shape while data for the old one travel") {
  DriveHost host;
  REQUIRE(host.create(1, 1, 2) == status::success);
  // One doorbell, one fetch: free and create are executed while the 256 KB of the append are on the link.
  const SentPtr append = host.send_append(1, 0, 0, 2000, 0, 2);
  const SentPtr freed = host.send(DriveHost::free_entry(1));
  const SentPtr created = host.send(DriveHost::create_entry(1, 1, 2, 256));
  CHECK(host.run(freed) == status::success);
  CHECK(host.run(created) == status::success);
  CHECK(created->at < append->at);
  CHECK(host.run(append) == status::kv_shape_mismatch);
  CHECK(host.tokens_of(1) == 0);
}

TEST_CASE("an append gets the DRAM that a buffered block write gives back") {
  auto config = tiny_drive();
  config.geometry.page_size = Bytes::kib(4);
  config.kv.layout.embedding_group = 0;
  config.dram = Bytes::kib(20);
  config.write_buffer = Bytes::kib(16);
  DriveHost host(config);
  REQUIRE(host.create(1, 1, 1) == status::success);
  const SentPtr write = host.send_write(0, 4, std::byte{9});
  DriveHost::run_for(SimTime::microseconds(40));
  REQUIRE(write->done);
  REQUIRE(host.drive().dram().used() == Bytes::kib(16));
  // 128 tokens are a page of K and one of V: 8 KiB until they are programmed.
  const SentPtr append = host.send_append(1, 0, 0, 128, 0, 1);
  DriveHost::settle();
  REQUIRE(append->done);
  CHECK(append->status == status::success);
}

TEST_CASE("blocks and the KV cache share the write buffer, and flush covers both") {
  auto config = tiny_drive();
  config.geometry.page_size = Bytes::kib(4);
  config.kv.layout.embedding_group = 0;
  config.write_buffer = Bytes::kib(16);
  const SimTime soon = SimTime::microseconds(100);
  REQUIRE(soon < config.flash.program_latency);
  for (const std::uint32_t blocks : {0u, 2u, 3u}) {
    DriveHost host(config);
    REQUIRE(host.create(1, 1, 1) == status::success);
    if (blocks > 0) {
      const SentPtr write = host.send_write(0, blocks, std::byte{9});
      DriveHost::run_for(SimTime::microseconds(40));
      REQUIRE(write->done);
    }
    // 128 tokens are a page of K and one of V: 8 KiB, which three blocks leave no room for.
    const SimTime start = nvme::sim_now();
    const SentPtr append = host.send_append(1, 0, 0, 128, 0, 1);
    DriveHost::run_for(soon);
    CHECK(append->done == (blocks < 3));
    const SentPtr flush = host.send(nvme::encode_flush(kNamespace));
    REQUIRE(host.run(flush) == status::success);
    REQUIRE(host.run(append) == status::success);
    CHECK(flush->at - start > config.flash.program_latency);
  }
  // Block writes that are held back make room for a KV command that waits for DRAM.
  config.flush = {.policy = csd_model::FlushPolicy::threshold, .threshold = Bytes::kib(16), .idle_time = {}};
  config.dram = Bytes::kib(20);
  DriveHost host(config);
  REQUIRE(host.create(1, 1, 1) == status::success);
  REQUIRE(host.run(host.send_write(0, 3, std::byte{9})) == status::success);
  REQUIRE(host.drive().dram().used() == Bytes::kib(12));
  const SentPtr append = host.send_append(1, 0, 0, 128, 0, 1);
  REQUIRE(host.run(append) == status::success);
}

TEST_CASE("a drive may be taken away at any time, with commands in it") {
  auto config = tiny_drive();
  config.lookup_time = SimTime::microseconds(2);
  for (std::int64_t at = 0; at < 160; at += 4) {
    Filled host(config);
    auto a = host.prepare_attend(0, {sparse_heads_of(1, 200, 0, 2, 8, 60, 20, true)}, AttendMethod::sparf);
    host.send_attend(a);
    host.send_write(3, 2, std::byte{1}, 2);
    host.send_read(3, 2, 3);
    host.send_append(1, 0, 201, 70, 0, 2, 4);
    DriveHost::run_for(SimTime::microseconds(at + 1));
  }
}

}  // namespace test_kv_concurrency
