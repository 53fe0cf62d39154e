// Commands that meet in the drive: a host may send them in any order, and each gets an answer that is right for some
// order of arrival.
#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <string_view>

#include "tests/drive/drive_host.h"

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

namespace {

/// Any KV commands, some of them wrong, on four queues at a time. Content depends on sequence and token only, so that
/// whatever an attend, score or fetch answers with success can be checked, in whatever order commands took effect.
class RandomKv {
 public:
  RandomKv(DriveHost& host, std::uint64_t seed) : host_(host), rng_(seed) {}

  void run(std::uint32_t commands, std::uint32_t depth) {
    left_ = commands;
    for (std::uint32_t i = 0; i < depth; ++i) next();
    DriveHost::settle();
    REQUIRE(left_ == 0);
    REQUIRE(host_.driver().issued() == host_.driver().completed());
    REQUIRE(host_.drive().controller().commands_inside() == 0);
  }

  std::map<std::string_view, std::uint32_t> statuses;
  std::uint32_t attends = 0, scores = 0, fetches = 0;  ///< that succeeded and were checked
  double worst = 0;
  std::uint64_t wrong = 0;

 private:
  static constexpr std::uint32_t kSequences = 4, kLayers = 2, kHeads = 3;

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(rng_.below(n)); }
  bool rarely() { return below(25) == 0; }
  std::uint32_t tokens(std::uint32_t sequence, std::uint32_t layer, std::uint32_t head) {
    const ftl::KvKey key{SequenceId{sequence}, LayerId{layer}, KvHead{head}};
    return host_.drive().kv_ftl().check(key) == ftl::KvStatus::ok ? host_.drive().kv_ftl().tokens(key) : 0;
  }

  void send(const nvme::SubmissionEntry& entry, nvme::Segment b, std::function<void()> check) {
    const std::span<const nvme::Segment> segments(&b, b.length.value == 0 ? 0 : 1);
    host_.driver().submit(nvme::QueueId{static_cast<std::uint16_t>(1 + below(4))}, entry, segments,
                          [this, check = std::move(check)](const nvme::CompletionEntry& cqe, SimTime) {
                            ++statuses[nvme::status_name(cqe.code())];
                            if (cqe.code().ok() && check) check();
                            next();
                          });
  }

  void next() {
    if (left_ == 0) return;
    --left_;
    const std::uint32_t sequence = below(kSequences) + (rarely() ? 7 : 0);
    const std::uint32_t layer = below(kLayers) + (rarely() ? 2 : 0);
    const std::uint32_t first = below(kHeads);
    const std::uint32_t heads = 1 + below(kHeads - first) + (rarely() ? 1 : 0);
    const std::uint32_t have = tokens(sequence, layer, first);
    const std::uint32_t dice = below(100);
    if (dice < 10) return send(DriveHost::create_entry(sequence, kLayers, kHeads, 16, below(2) & 1), {}, {});
    if (dice < 12) return send(DriveHost::free_entry(sequence), {}, {});
    if (dice < 40) {
      const nvme::KvAppend c =
          DriveHost::append_command(sequence, layer, have + (rarely() ? 1 : 0), 1 + below(70), first, heads);
      const nvme::Segment b = host_.buffer(nvme::append_size(c, 16));
      for (const auto kind : {Content::key, Content::value})
        host_.put(b.address + Bytes{kind == Content::key ? 0 : b.length.value / 2},
                  host_.content.rows(kind, sequence, layer, first, heads, c.first_token.value, c.token_count));
      return send(nvme::encode(kNamespace, c, 16), b, {});
    }
    if (dice < 75) return attend(sequence, layer, first, heads);
    if (dice < 87) return score(sequence, layer, first, heads, have);
    return fetch(sequence, layer, first, heads, have);
  }

  void attend(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t heads) {
    const bool sparf = below(2) == 0;
    const auto descriptor = [&](std::uint32_t s) {
      const std::uint32_t have = tokens(s, layer, first);
      const bool append = have == 0 || below(3) != 0;
      const std::uint32_t token = have - (append ? 0 : 1) + (rarely() ? 1 : 0);
      nvme::AttendDescriptor d =
          heads_of(s, token, static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(heads), append);
      if (sparf) {
        d.r = static_cast<std::uint16_t>(1 + below(rarely() ? 20 : 16));
        d.k = 1 + below(80);
        d.l = below(30);
      }
      return d;
    };
    std::vector<nvme::AttendDescriptor> descriptors{descriptor(sequence)};
    if (below(2) == 0) descriptors.push_back(descriptor(below(kSequences)));
    auto a = host_.prepare_attend(layer, descriptors, sparf ? AttendMethod::sparf : AttendMethod::dense,
                                  static_cast<std::uint8_t>(1 + below(2)));
    const nvme::Segment b = a.sent->buffer;
    send(nvme::encode(kNamespace, a.command), b, [this, a] {
      ++attends;
      // Where two tokens score nearly the same, double precision may choose the other one.
      if (a.command.method == AttendMethod::dense) worst = std::max(worst, host_.error(a));
    });
  }

  void score(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t heads,
             std::uint32_t have) {
    if (have == 0) have = 1;
    const nvme::KvScore c{LayerId{layer}, 1, AttendMethod::dense, 1, 16, heads, heads * have};
    const nvme::ScoreLayout layout = nvme::score_layout(c);
    const nvme::Segment b = host_.buffer(layout.size);
    host_.put(b.address, std::vector{heads_of(sequence, have - 1, static_cast<std::uint16_t>(first),
                                              static_cast<std::uint16_t>(heads))});
    const auto q = host_.content.rows(Content::query, sequence, layer, first, heads, have, 1);
    host_.put(b.address + layout.q, q);
    send(nvme::encode(kNamespace, c), b, [=, this] {
      ++scores;
      const auto found = host_.get<float>(b.address + layout.scores, c.total_scores);
      for (std::uint32_t h = 0; h < heads; ++h)
        for (std::uint32_t token = 0; token < have; ++token) {
          double expected = 0;
          for (std::uint32_t i = 0; i < 16; ++i)
            expected +=
                double{half_to_float(q[h * 16 + i])} *
                double{half_to_float(host_.content.element(Content::key, sequence, layer, first + h, token, i))};
          if (std::abs(expected - double{found[h * have + token]}) > 1e-4) ++wrong;
        }
    });
  }

  void fetch(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t heads,
             std::uint32_t have) {
    std::vector<std::uint32_t> wanted(1 + below(9));
    for (std::uint32_t& token : wanted) token = below(have + (rarely() ? 2 : 0) + (have == 0 ? 1 : 0));
    const nvme::KvFetch c{LayerId{layer}, 16, static_cast<std::uint32_t>(wanted.size()),
                          static_cast<std::uint16_t>(heads)};
    const nvme::FetchLayout layout = nvme::fetch_layout(c);
    const nvme::Segment b = host_.buffer(layout.size);
    host_.put(b.address,
              std::vector{heads_of(sequence, 0, static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(heads))});
    host_.put(b.address + layout.tokens, wanted);
    send(nvme::encode(kNamespace, c), b, [=, this] {
      ++fetches;
      for (const auto& [kind, at] : {std::pair{Content::key, layout.k}, std::pair{Content::value, layout.v}}) {
        std::vector<Half> expected;
        for (std::uint32_t h = first; h < first + heads; ++h)
          for (const std::uint32_t token : wanted) {
            const auto row = host_.content.row(kind, sequence, layer, h, token);
            expected.insert(expected.end(), row.begin(), row.end());
          }
        if (host_.get<Half>(b.address + at, expected.size()) != expected) ++wrong;
      }
    });
  }

  DriveHost& host_;
  Rng rng_;
  std::uint32_t left_ = 0;
};

}  // namespace

TEST_CASE("random KV commands, right and wrong, many at a time: every answer is right, and everything comes back") {
  const std::uint64_t seed = GENERATE(range(1, 9));
  INFO("seed " << seed);
  auto config = tiny_drive();
  config.geometry.blocks_per_plane = 24;
  config.kv.tail = seed % 2 == 0 ? ftl::TailPolicy::token_index : ftl::TailPolicy::dram;
  config.dram = Bytes::kib(seed % 4 < 2 ? 24 : 4096);
  config.write_buffer = Bytes::kib(seed % 3 * 16);
  config.lookup_time = SimTime::nanoseconds(static_cast<std::int64_t>(seed % 2) * 300);
  config.fidelity = seed == 8 ? csd_model::Fidelity::at : csd_model::Fidelity::fast;
  DriveHost host(config);
  RandomKv work(host, seed);
  work.run(2500, 12);
  for (const auto& [name, count] : work.statuses) UNSCOPED_INFO(name << ": " << count);
  CHECK(work.wrong == 0);
  CHECK(work.worst < kOutputTolerance);
  CHECK(work.attends > 50);
  CHECK(work.scores > 20);
  CHECK(work.fetches > 20);
  CHECK(work.statuses.size() > 5);
  CHECK((work.statuses.contains("kv_out_of_dram") || seed % 4 >= 2));
  CHECK(host.integrity_errors() == 0);
  CHECK(host.drive().kv_ftl().verify() == 0);
  for (std::uint32_t s = 0; s < 11; ++s) host.run(DriveHost::free_entry(s));
  CHECK(host.drive().dram().used() == Bytes{});
  CHECK(host.drive().kv_ftl().pending_flushes() == 0);
}
