// Partly valid blocks of the KV namespace: their pages move, readers keep the old ones, the space comes back.
#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "kv_fixture.h"

namespace test_kv_gc {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

const FlashGeometry kGeometry{2, 1, 1, 8, 8, Bytes{512}};  // 128 pages, of which 8 stay free
const KvShape kShape{1, 1, 16, 0, false};                  // a group of 16 tokens is a page of K and one of V
const SequenceId kStay{1};
const SequenceId kGo{2};

KvFtlConfig config() {
  KvFtlConfig c;
  c.layout.embedding_group = 1;
  return c;
}

AppendResult append(KvDrive& drive, SequenceId id, std::uint32_t groups) {
  const HeadKey key{id, LayerId{0}, KvHead{0}};
  const std::uint32_t at = drive.ftl.tokens(key);
  std::vector<Half> rows(groups * 256);
  if (drive.store.carried()) {
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<Half>(id.value * 7919 + at * 16 + i);
  } else {
    rows.clear();
  }
  return drive.ftl.append(id, LayerId{0}, TokenIndex{at}, groups * 16, {KvHead{0}, 1}, rows, rows);
}

void run(KvDrive& drive, const AppendResult& result) {
  for (const FlushJob& job : result.jobs) {
    for (const PageOp& op : drive.finish(job)) drive.erase(op);
  }
  for (const PageOp& op : result.erases) drive.erase(op);
}

/// Two sequences fill the namespace page by page in turns; then one of them goes. Every block is half valid.
KvDrive& interleave(KvDrive& drive) {
  drive.ftl.create_sequence(kStay, kShape);
  drive.ftl.create_sequence(kGo, kShape);
  for (int i = 0; i < 30; ++i) {
    for (const SequenceId id : {kStay, kGo}) {
      const AppendResult result = append(drive, id, 1);
      REQUIRE(result.status == KvStatus::ok);
      run(drive, result);
    }
  }
  REQUIRE(append(drive, kStay, 1).status == KvStatus::out_of_space);
  for (const PageOp& op : drive.ftl.free_sequence(kGo).erases) drive.erase(op);
  return drive;
}

void check_rows(KvDrive& drive, std::uint32_t tokens) {
  for (std::uint32_t t = 0; t < tokens; ++t) {
    for (const KvKind kind : {KvKind::key, KvKind::value}) {
      const Half* row = drive.ftl.token_row({kStay, LayerId{0}, KvHead{0}}, kind, TokenIndex{t});
      for (std::uint32_t i = 0; i < 16; ++i) REQUIRE(row[i] == static_cast<Half>(kStay.value * 7919 + t * 16 + i));
    }
  }
}

}  // namespace

TEST_CASE("partly valid blocks are collected when appends need their room, in both data modes") {
  for (const DataMode mode : {DataMode::carried, DataMode::timing}) {
    KvDrive drive(kGeometry, config(), mode);
    interleave(drive);
    int busy = 0;
    for (int groups = 30; groups < 58;) {
      const AppendResult result = append(drive, kStay, 1);
      REQUIRE((result.status == KvStatus::ok || result.status == KvStatus::busy));
      groups += result.status == KvStatus::ok ? 1 : 0;
      busy += result.status == KvStatus::busy ? 1 : 0;
      REQUIRE(busy < 60);
      REQUIRE_NOTHROW(run(drive, result));
    }
    CHECK(drive.ftl.stats().gc_blocks > 5);
    CHECK(drive.ftl.stats().gc_pages_moved > 20);
    CHECK(drive.ftl.stats().gc_pages_moved < 200);
    CHECK(drive.ftl.draining_blocks() == 0);
    if (mode == DataMode::timing) continue;
    check_rows(drive, 58 * 16);
    CHECK(drive.ftl.verify() == 0);
    CHECK(drive.store.integrity_errors() == 0);
  }
}

TEST_CASE("a moved page is read from DRAM until its program is done, and its old block waits for readers") {
  KvDrive drive(kGeometry, config(), DataMode::carried);
  interleave(drive);
  REQUIRE(drive.ftl.pin(kStay) == KvStatus::ok);
  const HeadKey key{kStay, LayerId{0}, KvHead{0}};
  std::vector<std::uint32_t> groups(30);
  for (std::uint32_t i = 0; i < 30; ++i) groups[i] = i;
  ReadPlan before;
  drive.ftl.plan_token_groups(key, KvRows::keys, groups, {}, before);
  const std::vector<PageOp>& reads = before.ops;
  CHECK(reads.size() == 30);

  const AppendResult result = append(drive, kStay, 2);
  REQUIRE(result.status == KvStatus::busy);
  REQUIRE(result.jobs.size() >= 1);
  std::size_t moved_keys = 0;
  for (const FlushJob& job : result.jobs) {
    for (const PageOp& op : job.reads) {
      CHECK(op.op_class == OpClass::gc);
      moved_keys += std::ranges::count(reads, op.ppa, &PageOp::ppa);
    }
  }
  ReadPlan now;
  drive.ftl.plan_token_groups(key, KvRows::keys, groups, {}, now);
  CHECK(now.size() == 30 - moved_keys);
  for (const FlushJob& job : result.jobs) CHECK(drive.finish(job).empty());  // the pin is still there
  CHECK(drive.ftl.draining_blocks() == result.jobs.size());
  for (const PageOp& op : reads) REQUIRE_NOTHROW(drive.flash.run(op, false));
  now.clear();
  drive.ftl.plan_token_groups(key, KvRows::keys, groups, {}, now);
  CHECK(now.size() == 30);
  CHECK(append(drive, kStay, 2).status == KvStatus::busy);
  const std::vector<PageOp> erases = drive.ftl.unpin(kStay);
  CHECK(erases.size() == result.jobs.size());
  for (const PageOp& op : erases) REQUIRE_NOTHROW(drive.erase(op));
  CHECK(append(drive, kStay, 2).status == KvStatus::ok);
  check_rows(drive, 32 * 16);
}

TEST_CASE("an open block of dead pages gives its room back") {
  // One plane: whatever the block of sequence 2 had left is lost until it is erased.
  KvDrive drive({1, 1, 1, 4, 8, Bytes{512}}, config(), DataMode::timing);
  drive.ftl.create_sequence(kGo, kShape);
  run(drive, append(drive, kGo, 3));
  CHECK(drive.ftl.free_sequence(kGo).erases.empty());
  CHECK(drive.blocks.state(BlockId{0}) == BlockState::open);
  drive.ftl.create_sequence(kStay, kShape);
  // 24 pages but a block can be appended; six dead ones are in the way.
  AppendResult result = append(drive, kStay, 12);
  CHECK(result.status == KvStatus::busy);
  CHECK(result.erases.size() == 1);
  run(drive, result);
  CHECK(append(drive, kStay, 12).status == KvStatus::ok);
}

TEST_CASE("what a fork replaces is given back when an append needs its room, and not before") {
  for (const bool fits : {true, false}) {
    CAPTURE(fits);
    KvFtlConfig c = config();
    c.tail = TailPolicy::partial_program;
    c.layout.embedding_group = 8;  // windows are two groups of tokens, in two pages
    KvShape shape = kShape;
    shape.component_major = true;
    KvDrive drive(kGeometry, c, DataMode::timing);
    drive.ftl.create_sequence(kStay, shape);
    drive.ftl.create_sequence(kGo, shape);
    // Half a window is two token pages and two pages of components, which belong to nobody after a fork.
    run(drive, append(drive, kStay, 1));
    REQUIRE(drive.ftl.fork_sequence(kStay, SequenceId{3}) == KvStatus::ok);
    REQUIRE(drive.ftl.superseded_pages() == 2);
    // 4 + 4 + 4 of 120 pages for appends are taken then.
    for (int i = 0; i < 2; ++i) run(drive, append(drive, kGo, 1));
    REQUIRE(drive.blocks.available_pages(Namespace::kv) == 116);
    // 18 windows of 6 pages take exactly what is left.
    const AppendResult result = append(drive, kGo, fits ? 36 : 37);
    CHECK((result.status == KvStatus::ok) == fits);
    CHECK(drive.ftl.superseded_pages() == (fits ? 2 : 0));
  }
}

TEST_CASE("pages of a failed block leave the block that collection needs") {
  struct FailOnce final : MediaFaults {
    ReadOutcome read(PhysicalPageAddress, std::uint32_t, std::uint32_t) override { return {}; }
    bool program_fails(PhysicalPageAddress, std::uint32_t) override { return std::exchange(next, false); }
    bool erase_fails(BlockId, std::uint32_t) override { return false; }
    bool next = false;
  } media;
  // Without embedding pages a group is two pages: a block holds three groups of kStay and one of kGo.
  KvDrive drive({1, 1, 1, 9, 8, Bytes{512}}, config(), DataMode::carried, Bytes::gib(1), {.spare_blocks = 1}, &media);
  for (const SequenceId id : {kStay, kGo}) drive.ftl.create_sequence(id, {1, 1, 16, 0, false});
  const auto of = [](int group) { return group % 4 == 3 ? kGo : kStay; };
  for (int group = 0; group < 22; ++group) run(drive, append(drive, of(group), 1));
  const AppendResult pending = append(drive, kStay, 1);
  media.next = true;
  const AppendResult failing = append(drive, kGo, 1);
  REQUIRE(failing.jobs.size() == 1);
  const BlockId failed = drive.blocks.block_of(failing.jobs[0].programs[0].ppa);
  run(drive, failing);
  REQUIRE(drive.blocks.state(failed) == BlockState::retired);
  // The block cannot be emptied while a page of it is on its way, and appends take the room that the spare block gave.
  int group = 24;
  for (KvStatus status = KvStatus::ok; status == KvStatus::ok; ++group) {
    const AppendResult result = append(drive, of(group), 1);
    status = result.status;
    run(drive, result);
  }
  run(drive, pending);
  REQUIRE(drive.blocks.valid_pages(failed) >= 6);
  for (const PageOp& op : drive.ftl.free_sequence(kGo).erases) drive.erase(op);
  const std::uint32_t tokens = drive.ftl.tokens({kStay, LayerId{0}, KvHead{0}});
  for (int more = 0; more < 2; ++more) {
    KvStatus status = KvStatus::busy;
    for (int tries = 0; status == KvStatus::busy; ++tries) {
      REQUIRE(tries < 20);
      const AppendResult result = append(drive, kStay, 1);
      status = result.status;
      run(drive, result);
    }
    REQUIRE(status == KvStatus::ok);
  }
  CHECK(drive.blocks.state(failed) == BlockState::bad);
  check_rows(drive, tokens + 32);
  CHECK(drive.ftl.verify() == 0);
}

}  // namespace test_kv_gc
