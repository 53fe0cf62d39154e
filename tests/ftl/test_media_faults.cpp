// Retries, lost pages, failing programs and erases, bad blocks.
#include <catch2/catch.hpp>
#include <cstring>

#include "base/error.h"
#include "block_drive.h"
#include "faulty_media.h"
#include "kv_fixture.h"

namespace test_media_faults {

using namespace csdsim;
using namespace csdsim::ftl;
using csdsim::ftl::test::check_mapping;
using csdsim::ftl::test::FaultyMedia;
using csdsim::ftl::test::KvDrive;
using Drive = csdsim::ftl::test::BlockDrive;

namespace {

constexpr Bytes kPage{512};

std::vector<std::byte> image(std::uint64_t key) {
  std::vector<std::byte> data(kPage.value);
  Rng rng(key);
  for (std::byte& b : data) b = static_cast<std::byte>(rng());
  return data;
}

}  // namespace

TEST_CASE("reads carry their retries, and an uncorrectable page is reported and still read") {
  FaultyMedia media(1);
  Drive drive({2, 1, 1, 16, 8, kPage}, {16, 0}, DataMode::timing, {}, {}, &media);
  drive.ftl.write({}, kPage * 8);
  media.retry = 1;
  const IoPlan retried = drive.ftl.read({}, kPage * 8);
  CHECK(retried.status == IoStatus::ok);
  REQUIRE(retried.phases.size() == 1);
  for (const PageOp& op : retried.phases[0]) CHECK(op.retries == 1);
  CHECK(drive.ftl.stats().read_retries == 8);
  media.uncorrectable = 1;
  const IoPlan lost = drive.ftl.read(kPage, kPage);
  CHECK(lost.status == IoStatus::uncorrectable);
  CHECK(lost.phases.at(0).size() == 1);
  CHECK(drive.ftl.stats().uncorrectable_reads == 1);
  // A partial write needs the rest of its page.
  const PhysicalPageAddress before = drive.ftl.lookup(LogicalPage{1});
  CHECK(drive.ftl.write(kPage + Bytes{100}, Bytes{10}).status == IoStatus::uncorrectable);
  CHECK(drive.ftl.lookup(LogicalPage{1}) == before);
  check_mapping(drive);
  CHECK(drive.ftl.write(kPage, kPage).status == IoStatus::ok);
}

TEST_CASE("a page that collection could not correct stays uncorrectable until it is written or trimmed") {
  FaultyMedia media(1);
  Drive drive({1, 1, 1, 16, 8, kPage}, {16, 0}, DataMode::timing, {}, {}, &media);
  const std::uint64_t pages = drive.pages();
  drive.ftl.write({}, kPage * pages);
  media.uncorrectable = 1;
  Rng rng(1);
  for (int i = 0; i < 300; ++i) drive.ftl.write(kPage * (rng.below(pages / 2) * 2), kPage);
  REQUIRE(drive.ftl.stats().gc_pages_moved > 0);
  media.uncorrectable = 0;
  std::vector<std::uint64_t> lost;
  for (std::uint64_t p = 0; p < pages; ++p) {
    if (drive.ftl.read(kPage * p, kPage).status == IoStatus::uncorrectable) lost.push_back(p);
  }
  REQUIRE(lost.size() > 2);
  CHECK(drive.ftl.write(kPage * lost[0], kPage).status == IoStatus::ok);
  CHECK(drive.ftl.read(kPage * lost[0], kPage).status == IoStatus::ok);
  drive.ftl.trim(kPage * lost[1], kPage);
  CHECK(drive.ftl.read(kPage * lost[1], kPage).status == IoStatus::ok);
  CHECK(drive.ftl.read(kPage * lost[2], kPage).status == IoStatus::uncorrectable);
}

TEST_CASE("failing programs and erases lose no page; spare blocks replace bad ones until there are none left") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    FaultyMedia media(seed);
    media.program = 0.002;
    media.erase = 0.01;
    const FlashGeometry g{2, 1, 2, 40, 16, kPage};
    Drive drive(g, {28, 0}, DataMode::carried, {.check = PageCheck::key_and_crc}, {.spare_blocks = 12}, &media);
    const std::uint64_t pages = drive.pages();
    std::vector<std::uint64_t> oracle(pages, 0);
    Rng rng(seed);
    std::uint64_t key = 0;
    IoStatus status = IoStatus::ok;
    while (status == IoStatus::ok) {
      REQUIRE(key < 200'000);
      const std::uint64_t page = rng.below(pages);
      const IoPlan plan = drive.ftl.write(kPage * page, kPage, image(++key));
      status = plan.status;
      REQUIRE_NOTHROW(drive.run(plan));
      if (status == IoStatus::ok) oracle[page] = key;
      if (key % 512 == 0) check_mapping(drive);
    }
    CHECK(status == IoStatus::read_only);
    CHECK(drive.ftl.read_only());
    CHECK(drive.ftl.trim({}, kPage).status == IoStatus::read_only);
    check_mapping(drive);
    const BlockFtlStats& s = drive.ftl.stats();
    CHECK(s.program_failures > 5);
    CHECK(s.erase_failures > 1);
    CHECK(s.retired_pages_moved > 5);
    CHECK(drive.blocks.grown_bad_blocks() == s.program_failures + s.erase_failures);
    CHECK(drive.flash.programs == s.host_pages_written + s.gc_pages_moved + s.retired_pages_moved + s.program_failures);
    std::vector<std::byte> data(kPage.value);
    for (std::uint64_t p = 0; p < pages; ++p) {
      const IoPlan plan = drive.ftl.read(kPage * p, kPage, data);
      REQUIRE(plan.status == IoStatus::ok);
      REQUIRE_NOTHROW(drive.run(plan));
      REQUIRE(data == (oracle[p] == 0 ? std::vector<std::byte>(kPage.value) : image(oracle[p])));
    }
    CHECK(drive.store.integrity_errors() == 0);
  }
}

TEST_CASE("factory bad blocks are never used, and more of them than spare blocks are refused") {
  const FlashGeometry g{2, 2, 1, 64, 8, kPage};
  const BlockManagerConfig config{.spare_blocks = 12, .factory_bad_blocks = 0.05, .seed = 3};
  Drive drive(g, {52, 0}, DataMode::timing, {}, config);
  const std::uint64_t bad = drive.blocks.factory_bad_blocks();
  REQUIRE(bad > 3);
  drive.ftl.precondition(drive.ftl.capacity(), 5);
  check_mapping(drive);
  drive.program_what_is_written();
  Rng rng(1);
  for (std::uint64_t i = 0; i < 3 * drive.pages(); ++i) {
    REQUIRE_NOTHROW(drive.run(drive.ftl.write(kPage * rng.below(drive.pages()), kPage)));
  }
  check_mapping(drive);
  std::uint64_t found = 0;
  for (std::uint32_t b = 0; b < g.blocks(); ++b) {
    if (drive.blocks.state(BlockId{b}) != BlockState::bad) continue;
    ++found;
    CHECK(drive.blocks.written_pages(BlockId{b}) == 0);
    CHECK(drive.blocks.erase_count(BlockId{b}) == 0);
  }
  CHECK(found == bad);
  CHECK_THROWS_WITH(BlockManager(g, {60, 0}, {.spare_blocks = 1, .factory_bad_blocks = 0.2}),
                    Catch::Contains("factory bad blocks"));
  CHECK_THROWS_WITH(BlockManager(g, {60, 0}, {.spare_blocks = 5}), Catch::Contains("5 spare"));
}

TEST_CASE("KV pages survive failing programs and erases; without spare blocks appends are refused") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    FaultyMedia media(seed);
    media.program = 0.01;
    media.erase = 0.02;
    const FlashGeometry g{2, 1, 2, 24, 8, kPage};
    KvDrive drive(g, {}, DataMode::carried, Bytes::gib(1), {.spare_blocks = 6}, &media);
    std::mt19937_64 rng(seed);
    const KvShape shape{1, 2, 16, 0};
    std::map<std::uint32_t, std::vector<Half>> keys;  // by sequence; [head][token][d] appended in steps of 16 tokens
    KvStatus status = KvStatus::ok;
    const auto run = [&](const AppendResult& result) {
      for (const FlushJob& job : result.jobs) {
        for (const PageOp& op : drive.finish(job)) drive.erase(op);
      }
      for (const PageOp& op : result.erases) drive.erase(op);
    };
    for (std::uint32_t round = 0; status != KvStatus::read_only; ++round) {
      REQUIRE(round < 20'000);
      const std::uint32_t id = static_cast<std::uint32_t>(rng() % 4);
      if (rng() % 6 == 0 && keys.contains(id)) {
        for (const PageOp& op : drive.ftl.free_sequence(SequenceId{id}).erases) drive.erase(op);
        keys.erase(id);
        continue;
      }
      if (!keys.contains(id)) drive.ftl.create_sequence(SequenceId{id}, shape);
      const std::vector<Half> rows = csdsim::ftl::test::random_halves(rng, 2 * 16 * 16);
      const auto at = static_cast<std::uint32_t>(keys[id].size() / 32);
      const AppendResult result =
          drive.ftl.append(SequenceId{id}, LayerId{0}, TokenIndex{at}, 16, {KvHead{0}, 2}, rows, rows);
      REQUIRE_NOTHROW(run(result));
      status = result.status;
      if (status == KvStatus::ok) keys[id].insert(keys[id].end(), rows.begin(), rows.end());
      if (status == KvStatus::out_of_space) {
        for (const PageOp& op : drive.ftl.free_sequence(SequenceId{id}).erases) drive.erase(op);
        keys.erase(id);
      }
    }
    CHECK(drive.ftl.stats().program_failures > 5);
    for (const auto& [id, rows] : keys) {
      const std::size_t tokens = rows.size() / 32;
      for (std::uint32_t t = 0; t < tokens; ++t) {
        for (std::uint32_t h = 0; h < 2; ++h) {
          const Half* expected = &rows[(t / 16 * 2 + h) * 256 + t % 16 * 16];
          const HeadKey key{SequenceId{id}, LayerId{0}, KvHead{h}};
          REQUIRE(std::memcmp(drive.ftl.token_row(key, KvKind::key, TokenIndex{t}), expected, 32) == 0);
          REQUIRE(std::memcmp(drive.ftl.token_row(key, KvKind::value, TokenIndex{t}), expected, 32) == 0);
        }
      }
    }
    CHECK(drive.ftl.verify() == 0);
    CHECK(drive.store.integrity_errors() == 0);
  }
}

}  // namespace test_media_faults
