// KV commands through the drive: what they answer, and that neither placement nor timing parameters change an answer.
#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <numeric>

#include "tests/drive/drive_host.h"

namespace test_kv_commands {

using namespace csdsim;
using namespace csdsim::test;
using nvme::AttendMethod;
namespace status = nvme::status;

namespace {

constexpr std::uint32_t kTokens = 203;  // three windows of 64, six groups of 32, 11 tokens in the group buffer

/// Gives `heads` heads of one layer tokens [0, tokens) in pieces that cut heads and tokens anywhere.
void append_in_pieces(DriveHost& host, std::uint32_t sequence, std::uint32_t layer, std::uint32_t heads,
                      std::uint32_t tokens, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::uint32_t> have(heads, 0);
  for (;;) {
    std::vector<std::uint32_t> open;
    for (std::uint32_t h = 0; h < heads; ++h)
      if (have[h] < tokens) open.push_back(h);
    if (open.empty()) return;
    const std::uint32_t first = open[rng.below(open.size())];
    std::uint32_t count = 1;
    while (first + count < heads && have[first + count] == have[first] && rng.below(3) != 0) ++count;
    const auto some = static_cast<std::uint32_t>(1 + rng.below(std::min<std::uint32_t>(90, tokens - have[first])));
    REQUIRE(host.append(sequence, layer, have[first], some, first, count) == status::success);
    for (std::uint32_t h = first; h < first + count; ++h) have[h] += some;
  }
}

}  // namespace

TEST_CASE("attend: dense over tokens appended in odd pieces equals softmax attention") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  INFO("seed " << seed);
  DriveHost host;
  host.content.seed = seed;
  REQUIRE(host.create(7, 3, 5) == status::success);
  append_in_pieces(host, 7, 2, 5, kTokens, seed);
  append_in_pieces(host, 7, 0, 5, 31, seed + 10);
  const auto a = host.attend(2, {heads_of(7, kTokens - 1, 0, 5)});
  REQUIRE(a.sent->status == status::success);
  CHECK(host.error(a) < kOutputTolerance);
  const auto b = host.attend(0, {heads_of(7, 30, 1, 3)});
  REQUIRE(b.sent->status == status::success);
  CHECK(host.error(b) < kOutputTolerance);
  // One more token comes with the attend itself.
  const auto c = host.attend(2, {heads_of(7, kTokens, 0, 5, true)});
  REQUIRE(c.sent->status == status::success);
  CHECK(host.error(c) < kOutputTolerance);
  CHECK(host.integrity_errors() == 0);
  CHECK(host.drive().kv_ftl().verify() == 0);
}

TEST_CASE("attend: several descriptors of different lengths and head ranges, each KV head for two query heads") {
  DriveHost host;
  const std::map<std::uint32_t, std::uint32_t> lengths{{1, 1}, {2, 32}, {3, 97}, {9, 200}};
  for (const auto& [sequence, tokens] : lengths) {
    REQUIRE(host.create(sequence, 1, 4) == status::success);
    REQUIRE(host.append(sequence, 0, 0, tokens, 0, 4) == status::success);
  }
  const std::vector<nvme::AttendDescriptor> parts{heads_of(9, 199, 1, 2), heads_of(1, 0, 0, 4), heads_of(3, 96, 3, 1),
                                                  heads_of(2, 31, 0, 2), heads_of(9, 199, 3, 1)};
  const auto dense = host.attend(0, parts, AttendMethod::dense, 2);
  REQUIRE(dense.sent->status == status::success);
  CHECK(host.error(dense) < kOutputTolerance);

  std::vector<nvme::AttendDescriptor> sparse;
  for (const auto& p : parts)
    sparse.push_back(sparse_heads_of(p.sequence, p.token, p.first_head, p.head_count, 8, 48, 16));
  const auto sparf = host.attend(0, sparse, AttendMethod::sparf, 2);
  REQUIRE(sparf.sent->status == status::success);
  CHECK(host.error(sparf) < kOutputTolerance);
  CHECK(host.output(sparf) != host.output(dense));

  // Everything taken is dense attention, to the bit.
  for (auto& p : sparse) p.k = 200;
  const auto full = host.attend(0, sparse, AttendMethod::sparf, 2);
  CHECK(host.output(full) == host.output(dense));
}

TEST_CASE("score: the sum over the group of q . k, for every token") {
  DriveHost host;
  REQUIRE(host.create(1, 2, 3) == status::success);
  REQUIRE(host.create(2, 2, 3) == status::success);
  REQUIRE(host.append(1, 1, 0, 137, 0, 3) == status::success);
  REQUIRE(host.append(2, 1, 0, 5, 0, 3) == status::success);
  const std::vector<nvme::AttendDescriptor> parts{heads_of(1, 136, 1, 2), heads_of(2, 4, 0, 1)};
  const std::uint8_t group = 2;
  const nvme::KvScore c{LayerId{1}, 2, AttendMethod::dense, group, 16, 3, 2 * 137 + 5};
  const nvme::ScoreLayout layout = nvme::score_layout(c);
  const nvme::Segment b = host.buffer(layout.size);
  host.put(b.address, parts);
  std::vector<Half> q = host.content.rows(Content::query, 1, 1, 2, 4, 136, 1);
  const auto q2 = host.content.rows(Content::query, 2, 1, 0, 2, 4, 1);
  q.insert(q.end(), q2.begin(), q2.end());
  host.put(b.address + layout.q, q);
  REQUIRE(host.run(nvme::encode(kNamespace, c), b) == status::success);

  const auto scores = host.get<float>(b.address + layout.scores, c.total_scores);
  std::size_t at = 0;
  std::size_t head = 0;
  for (const auto& p : parts)
    for (std::uint32_t h = p.first_head; h < std::uint32_t{p.first_head} + p.head_count; ++h, ++head)
      for (std::uint32_t token = 0; token <= p.token; ++token) {
        double expected = 0;
        for (std::size_t i = 0; i < 32; ++i)
          expected += double{half_to_float(q[head * 32 + i])} *
                      double{half_to_float(host.content.element(Content::key, p.sequence, 1, h, token,
                                                                static_cast<std::uint32_t>(i % 16)))};
        REQUIRE(scores[at++] == Approx(expected).margin(1e-4));
      }
}

TEST_CASE("fork: the child has its parent's tokens without a program, and what each appends is its own") {
  DriveHost host;
  REQUIRE(host.create(1, 2, 2) == status::success);
  const auto fork = [&](std::uint32_t parent, std::uint32_t child) {
    return host.run(nvme::encode(kNamespace, nvme::KvFork{SequenceId{parent}, SequenceId{child}}));
  };
  const std::uint32_t shared = kTokens;  // 11 of them in no full group
  REQUIRE(host.append(1, 0, 0, shared, 0, 2) == status::success);
  CHECK(fork(1, 2) == status::kv_bad_token);  // layer 1 is empty
  REQUIRE(host.append(1, 1, 0, shared, 0, 2) == status::success);
  CHECK(fork(9, 2) == status::kv_unknown_sequence);
  CHECK(fork(1, 1) == status::kv_sequence_exists);
  const auto programs = [&] {
    const auto& stats = host.drive().kv_ftl().stats();
    return stats.token_pages_programmed + stats.embedding_pages_programmed;
  };
  const std::uint64_t before = programs();
  REQUIRE(fork(1, 2) == status::success);
  CHECK(programs() == before);

  // Sequence 2 goes on with rows of its own, past the end of the group and of the window; so does sequence 1.
  for (std::uint32_t s = 1; s <= 2; ++s)
    for (std::uint32_t layer = 0; layer < 2; ++layer)
      REQUIRE(host.append(s, layer, shared, 90, 0, 2) == status::success);
  const auto check = [&](std::uint32_t sequence) {
    std::vector<std::uint32_t> tokens(shared + 90);
    std::iota(tokens.begin(), tokens.end(), 0u);
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
      const nvme::KvFetch c{LayerId{layer}, 16, static_cast<std::uint32_t>(tokens.size()), 2};
      const nvme::FetchLayout layout = nvme::fetch_layout(c);
      const nvme::Segment b = host.buffer(layout.size);
      host.put(b.address, std::vector{heads_of(sequence, 0, 0, 2)});
      host.put(b.address + layout.tokens, tokens);
      REQUIRE(host.run(nvme::encode(kNamespace, c), b) == status::success);
      for (const auto& [kind, at] : {std::pair{Content::key, layout.k}, std::pair{Content::value, layout.v}}) {
        std::vector<Half> expected;
        for (std::uint32_t h = 0; h < 2; ++h)
          for (const std::uint32_t token : tokens) {
            const auto row = host.content.row(kind, token < shared ? 1 : sequence, layer, h, token);
            expected.insert(expected.end(), row.begin(), row.end());
          }
        CHECK(host.get<Half>(b.address + at, expected.size()) == expected);
      }
    }
  };
  check(1);
  check(2);
  REQUIRE(host.free(1) == status::success);
  check(2);
  CHECK(host.integrity_errors() + host.drive().kv_ftl().verify() == 0);
  REQUIRE(host.free(2) == status::success);
  DriveHost::settle();
  CHECK(host.drive().kv_ftl().dram().used() == Bytes{0});
}

TEST_CASE("fetch: rows in any order, repeats included, from flash and from DRAM") {
  DriveHost host;
  REQUIRE(host.create(4, 1, 4) == status::success);
  REQUIRE(host.append(4, 0, 0, 140, 0, 4) == status::success);
  const std::vector<std::uint32_t> tokens{139, 0, 63, 64, 0, 138, 31, 32, 127, 139};
  const nvme::KvFetch c{LayerId{0}, 16, static_cast<std::uint32_t>(tokens.size()), 3};
  const nvme::FetchLayout layout = nvme::fetch_layout(c);
  const nvme::Segment b = host.buffer(layout.size);
  host.put(b.address, std::vector{heads_of(4, 0, 1, 3)});
  host.put(b.address + layout.tokens, tokens);
  REQUIRE(host.run(nvme::encode(kNamespace, c), b) == status::success);
  for (const auto& [kind, at] : {std::pair{Content::key, layout.k}, std::pair{Content::value, layout.v}}) {
    std::vector<Half> expected;
    for (std::uint32_t h = 1; h < 4; ++h)
      for (const std::uint32_t token : tokens) {
        const auto row = host.content.row(kind, 4, 0, h, token);
        expected.insert(expected.end(), row.begin(), row.end());
      }
    CHECK(host.get<Half>(b.address + at, expected.size()) == expected);
  }
  // Groups 0, 1, 2 and 3 of K and V come from flash, each once; 128.. are in DRAM.
  const auto& ops = host.drive().flash_statistics().ops;
  CHECK(ops[static_cast<std::size_t>(OpClass::attend)][static_cast<std::size_t>(PageOpKind::read)] == 3 * 2 * 4);
}

TEST_CASE("padding of an answer is zero, not what an earlier command left in the drive") {
  DriveHost host;
  host.content.d = 8;
  REQUIRE(host.create(1, 1, 3) == status::success);
  REQUIRE(host.append(1, 0, 0, 150, 0, 3) == status::success);
  const auto run = [&] {
    const auto a = host.prepare_attend(0, {heads_of(1, 149, 0, 3)});
    const Bytes padding = a.layout.size - a.layout.out - Bytes{3 * 8 * sizeof(Half)};
    REQUIRE(padding.value == 16);
    std::fill_n(host.at(a.sent->buffer.address + a.layout.out), 64, std::byte{0xEE});
    REQUIRE(host.run(nvme::encode(kNamespace, a.command), a.sent->buffer) == status::success);
    CHECK(host.error(a) < kOutputTolerance);
    return host.get<std::byte>(a.sent->buffer.address + (a.layout.size - padding), padding.value);
  };
  CHECK(run() == std::vector(16, std::byte{0}));
  // Data that fill several staging buffers of the same size to the last byte.
  for (std::uint32_t i = 0; i < 4; ++i) host.send_write(i, 1, std::byte{0x77});
  DriveHost::settle();
  CHECK(run() == std::vector(16, std::byte{0}));
}

TEST_CASE("attend that runs out of DRAM part way: what was appended stays, and the rest is tried again") {
  auto config = tiny_drive();
  config.dram = Bytes{6000};
  DriveHost host(config);
  REQUIRE(host.create(1, 1, 4) == status::success);
  REQUIRE(host.create(2, 1, 64) == status::success);
  REQUIRE(host.append(1, 0, 0, 3, 0, 4) == status::success);
  const auto failed = host.attend(0, {heads_of(1, 3, 0, 4, true), heads_of(2, 0, 0, 64, true)});
  REQUIRE(failed.sent->status == status::kv_out_of_dram);
  // Sequence 1 has its token: with the append flag it is one too many, without it the answer is right.
  CHECK(host.attend(0, {heads_of(1, 3, 0, 4, true)}).sent->status == status::kv_bad_token);
  const auto again = host.attend(0, {heads_of(1, 3, 0, 4), heads_of(2, 0, 0, 2, true)});
  REQUIRE(again.sent->status == status::success);
  CHECK(host.error(again) < kOutputTolerance);
}

TEST_CASE("free and create again while flushes run") {
  DriveHost host;
  REQUIRE(host.create(3, 1, 4) == status::success);
  const SentPtr old = host.send_append(3, 0, 0, 160, 0, 4);
  DriveHost::run_for(SimTime::microseconds(100));  // the pages are being programmed
  REQUIRE(!old->done);
  const SentPtr freed = host.send(DriveHost::free_entry(3));
  const SentPtr created = host.send(DriveHost::create_entry(3, 1, 4, 16));
  host.content.seed = 77;
  DriveHost::run_for(SimTime::microseconds(20));
  CHECK(freed->done);
  CHECK(!created->done);  // waits for the pages of the old one
  const SentPtr early = host.send_append(3, 0, 0, 70, 0, 4);
  CHECK(host.run(old) == status::success);
  CHECK(host.run(created) == status::success);
  CHECK(created->at >= old->at);
  // The sequence was unknown when this append arrived.
  CHECK(early->status == status::kv_unknown_sequence);
  REQUIRE(host.append(3, 0, 0, 70, 0, 4) == status::success);
  const auto a = host.attend(0, {heads_of(3, 69, 0, 4)});
  CHECK(host.error(a) < kOutputTolerance);
  CHECK(host.free(3) == status::success);
  CHECK(host.drive().dram().used() == Bytes{});
  CHECK(host.integrity_errors() == 0);
}

TEST_CASE("every page comes back: many generations of sequences on a small namespace") {
  auto config = tiny_drive();
  config.geometry.blocks_per_plane = 8;
  config.kv_share = 0.25;  // two blocks a plane: 512 pages, and a generation is 216
  DriveHost host(config);
  for (std::uint32_t generation = 0; generation < 12; ++generation) {
    host.content.seed = generation;
    REQUIRE(host.create(1, 1, 4) == status::success);
    REQUIRE(host.append(1, 0, 0, 600, 0, 4) == status::success);
    const auto a = host.attend(0, {sparse_heads_of(1, 599, 0, 4, 8, 100, 20)}, AttendMethod::sparf);
    REQUIRE(a.sent->status == status::success);
    CHECK(host.error(a) < kOutputTolerance);
    REQUIRE(host.free(1) == status::success);
  }
  CHECK(host.drive().kv_ftl().stats().erases > 0);
  CHECK(host.integrity_errors() == 0);
}

TEST_CASE(
    "token-major sequences: dense and SparF, without embedding pages, at the same cost under both tail policies") {
  std::optional<std::uint64_t> bytes;
  for (const auto tail : {ftl::TailPolicy::token_index, ftl::TailPolicy::dram}) {
    auto config = tiny_drive();
    config.kv.tail = tail;
    DriveHost host(config);
    REQUIRE(host.create(1, 1, 2, nvme::create_flag::token_major) == status::success);
    REQUIRE(host.append(1, 0, 0, kTokens, 0, 2) == status::success);
    CHECK(host.drive().kv_ftl().stats().embedding_pages_programmed == 0);
    CHECK(host.drive().kv_ftl().stats().token_pages_programmed == 2 * 2 * (kTokens / 32));
    const auto dense = host.attend(0, {heads_of(1, kTokens - 1, 0, 2)});
    CHECK(host.error(dense) < kOutputTolerance);
    const auto sparf = host.attend(0, {sparse_heads_of(1, kTokens - 1, 0, 2, 8, 60, 10)}, AttendMethod::sparf);
    REQUIRE(sparf.sent->status == status::success);
    CHECK(host.error(sparf) < kOutputTolerance);
    // All keys are scored from token pages: phase A reads every full group.
    CHECK(host.drive().engine_stats()->token_pages_a == 2 * (kTokens / 32));
    const std::uint64_t now = host.drive().totals().channel_bytes;
    CHECK(bytes.value_or(now) == now);
    bytes = now;
  }
}

TEST_CASE("a drive is drained when no token waits for the firmware and no page for the flash") {
  constexpr std::uint32_t kHeads = 6;
  auto config = tiny_drive();
  config.firmware.append = SimTime::microseconds(100);
  config.flash.program_latency = SimTime::milliseconds(2);
  DriveHost host(config);
  REQUIRE(host.create(1, 1, kHeads) == status::success);
  std::uint32_t called = 0;
  const auto ask = [&] { host.drive().when_drained([&] { ++called; }); };
  ask();
  CHECK(called == 1);
  // A group of each head: one core books them one after another, and the programs of all last longer.
  for (std::uint32_t head = 0; head < kHeads; ++head) host.send_append(1, 0, 0, 32, head, 1);
  for (std::uint32_t i = 1; i <= 2 * kHeads; ++i) {
    DriveHost::run_for(SimTime::microseconds(50));
    ask();
    CHECK(called == 1);
  }
  DriveHost::settle();
  CHECK(called == 1 + 2 * kHeads);
  ask();
  CHECK(called == 2 + 2 * kHeads);
}

}  // namespace test_kv_commands
