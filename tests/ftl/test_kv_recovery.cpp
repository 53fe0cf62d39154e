// Power loss at any operation: nothing that was acknowledged is lost.
#include <array>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "ftl/durability/kv_search.h"
#include "ftl/kv/kv_recovery.h"
#include "ftl/policies/registry.h"
#include "kv_fixture.h"

namespace test_kv_recovery {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

/// Writes full groups three at a time.
class LatePolicy final : public KvMappingPolicy {
 public:
  explicit LatePolicy(const FlashGeometry& geometry) : base_(geometry) {}
  std::string_view name() const override { return "late"; }
  PhysicalPageAddress place(const KvPageId& page, const KvSequenceInfo& sequence, PageAllocator& pages) override {
    return base_.place(page, sequence, pages);
  }
  std::uint32_t groups_to_write(const KvSequenceInfo& sequence, std::uint32_t tokens,
                                std::uint32_t written) const override {
    return (tokens / sequence.layout.group_tokens - written) / 3 * 3;
  }

 private:
  InstinferPolicy base_;
};

PolicyRegistry registry() {
  PolicyRegistry registry = PolicyRegistry::with_builtin();
  registry.add({"late", "Full groups three at a time.",
                [](const PolicyContext& context) { return std::make_unique<LatePolicy>(context.geometry); }});
  return registry;
}

const PolicyRegistry kRegistry = registry();

constexpr std::array kTails{TailPolicy::token_index, TailPolicy::dram, TailPolicy::partial_program};

/// Flash that stays when the rest of the drive is replaced.
struct Drive {
  explicit Drive(const FlashGeometry& g, TailPolicy tail = TailPolicy::token_index, MediaFaults* f = nullptr)
      : geometry(g), faults(f), store(g, DataMode::carried) {
    config.layout.embedding_group = 4;
    config.tail = tail;
    switch_on();
  }
  void switch_on() {
    ftl.reset();
    const std::uint32_t spare = faults == nullptr ? 0 : 2;
    blocks.emplace(geometry, BlockQuota{0, geometry.blocks_per_plane - spare},
                   BlockManagerConfig{.spare_blocks = spare});
    dram.emplace(Bytes::gib(1));
    ftl = std::make_unique<KvFtl>(config, *blocks, store, *dram, kRegistry.make("instinfer", {geometry, {}}), faults);
  }
  RecoveryResult recover(const KvDump& dump) {
    switch_on();
    return ftl->recover(dump);
  }
  AppendResult append(SequenceId id, std::uint32_t count) {
    const std::uint32_t at = ftl->tokens({id, {}, {}});
    std::vector<Half> rows(std::size_t{count} * 16);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<Half>(id.value * 7919 + at * 16 + i);
    return ftl->append(id, {}, TokenIndex{at}, count, {{}, 1}, rows, rows);
  }
  void check_rows(SequenceId id, std::uint32_t tokens) {
    REQUIRE(ftl->tokens({id, {}, {}}) == tokens);
    for (std::uint32_t t = 0; t < tokens; ++t) {
      const Half* row = ftl->token_row({id, {}, {}}, KvKind::key, TokenIndex{t});
      for (std::uint32_t i = 0; i < 16; ++i) REQUIRE(row[i] == static_cast<Half>(id.value * 7919 + t * 16 + i));
    }
  }

  FlashGeometry geometry;
  MediaFaults* faults;
  KvFtlConfig config;
  BackingStore store;
  std::optional<BlockManager> blocks;
  std::optional<DramBudget> dram;
  std::unique_ptr<KvFtl> ftl;
};

const FlashGeometry kSmall{1, 1, 1, 8, 8, Bytes{512}};  // a group of 16 tokens is a page of K and one of V
const SequenceId kStay{1};
const SequenceId kGo{2};

void run(Drive& drive, const AppendResult& result) {
  REQUIRE(result.status == KvStatus::ok);
  for (const FlushJob& job : result.jobs) drive.ftl->flush_done(job.id);
}

}  // namespace

TEST_CASE("what a dump holds, and what is scanned") {
  for (const TailPolicy tail : kTails) {
    Drive drive(kSmall, tail);
    drive.ftl->create_sequence(kStay, {1, 1, 16, 0});
    run(drive, drive.append(kStay, 64 + 32));  // 6 groups, a window of 64 tokens in 4 pages
    const AppendResult pending = drive.append(kStay, 16 + 5);
    REQUIRE(pending.status == KvStatus::ok);
    const KvDump dump = drive.ftl->power_loss();
    const KvDumpSize size = dump.size();
    CHECK(size.tails == Bytes{5 * 2 * 32});  // no component-major copy
    CHECK(size.value_means == Bytes{16 * 4});
    CHECK(size.images == Bytes{2 * (512 + 8)});
    CHECK(size.blocks == Bytes{dump.blocks.size() * sizeof(BlockRecord)});
    CHECK(size.tables.value > 0);
    CHECK(size.total() == size.tables + size.tails + size.value_means + size.images + size.blocks);

    PowerLoss loss;
    for (const FlushJob& job : pending.jobs) {
      for (const PageOp& op : job.programs) loss.torn.push_back(op.ppa);
    }
    drive.store.lose_power(loss);
    const RecoveryResult result = drive.recover(dump);
    const std::uint64_t partial_pages = tail == TailPolicy::partial_program ? 4 : 0;
    CHECK(result.oob_reads == 12 + 4 + partial_pages + loss.torn.size());
    CHECK(result.oob_reads_of_busiest_plane == result.oob_reads);
    CHECK(result.unreadable_pages == loss.torn.size());
    CHECK(result.pages + result.stale_pages == 16 + partial_pages);
    CHECK(result.saved_pages == 2);
    CHECK(result.rebuilt_pages == 0);
    // Keys of the unfinished window: tokens 64 to 95 are in flash.
    CHECK(result.reads.size() == (tail == TailPolicy::dram ? 2 : 0));
    REQUIRE(result.jobs.size() == 1);
    CHECK(result.jobs[0].programs.size() == 2);
    drive.check_rows(kStay, 64 + 32 + 16 + 5);
    CHECK(drive.ftl->transposed_tokens({kStay, {}, {}}) >= 64);
    CHECK(drive.ftl->verify() == 0);
  }
}

TEST_CASE("of two copies of a page the newer one stays, and the block of the older one is erased") {
  Drive drive(kSmall);
  drive.ftl->create_sequence(kStay, {1, 1, 16, 0, false});
  drive.ftl->create_sequence(kGo, {1, 1, 16, 0, false});
  for (int i = 0; i < 14; ++i) run(drive, drive.append(i % 2 == 0 ? kStay : kGo, 16));
  for (const PageOp& op : drive.ftl->free_sequence(kGo).erases) drive.ftl->erase_done(op.ppa);
  REQUIRE(drive.ftl->pin(kStay) == KvStatus::ok);  // a reader keeps the old pages
  const AppendResult collecting = drive.append(kStay, 16 * 15);
  REQUIRE(collecting.status == KvStatus::busy);
  for (const FlushJob& job : collecting.jobs) drive.ftl->flush_done(job.id);
  const std::size_t emptied = drive.ftl->draining_blocks();
  REQUIRE(emptied > 0);
  std::map<KvPageId, PhysicalPageAddress> before;
  drive.ftl->visit_pages([&](const KvPageId& page, PhysicalPageAddress ppa) { before[page] = ppa; });
  const RecoveryResult result = drive.recover(drive.ftl->power_loss());
  CHECK(result.jobs.empty());
  CHECK(result.erases.size() >= emptied);
  CHECK(result.pages == 14);
  drive.ftl->visit_pages([&](const KvPageId& page, PhysicalPageAddress ppa) { CHECK(before.at(page) == ppa); });
  drive.check_rows(kStay, 7 * 16);
}

TEST_CASE("power fails while the last free block takes moved pages: collection goes on after the recovery") {
  Drive drive(kSmall);
  drive.ftl->create_sequence(kStay, {1, 1, 16, 0, false});
  drive.ftl->create_sequence(kGo, {1, 1, 16, 0, false});
  for (int i = 0; i < 28; ++i) run(drive, drive.append(i % 2 == 0 ? kStay : kGo, 16));
  REQUIRE(drive.append(kStay, 16).status == KvStatus::out_of_space);
  REQUIRE(drive.ftl->free_sequence(kGo).erases.empty());
  const AppendResult collecting = drive.append(kStay, 16 * 5);
  REQUIRE(collecting.status == KvStatus::busy);
  REQUIRE(collecting.jobs.size() == 2);  // four valid pages each
  PowerLoss loss;
  for (const FlushJob& job : collecting.jobs) {
    REQUIRE(job.programs.size() == 4);
    for (int i = 0; i < 2; ++i) loss.torn.push_back(job.programs[static_cast<std::size_t>(i)].ppa);
  }
  const KvDump dump = drive.ftl->power_loss();
  CHECK(dump.images.empty());  // the old copies are there
  drive.store.lose_power(loss);
  const RecoveryResult result = drive.recover(dump);
  // No page is free and no block without a valid page: one of those with two is emptied into DRAM.
  CHECK(result.unreadable_pages == 4);
  CHECK(result.evacuated_pages == 2);
  CHECK(result.reads.size() == 2);
  REQUIRE(result.erases.size() == 1);
  CHECK(drive.ftl->parked_pages() == 2);
  CHECK(drive.dram->used(DramUse::flush_pending) == Bytes{1024});
  drive.check_rows(kStay, 14 * 16);

  const KvDump again = drive.ftl->power_loss();
  CHECK(again.images.size() == 2);
  drive.store.lose_power({{}, {}, {drive.geometry.block_of(result.erases[0].ppa)}});
  for (const PageOp& op : drive.recover(again).erases) drive.ftl->erase_done(op.ppa);
  drive.check_rows(kStay, 14 * 16);
  CHECK(drive.ftl->parked_pages() == 2);
  for (std::uint32_t groups = 14, tries = 0; groups < 28; ++tries) {
    REQUIRE(tries < 60);
    const AppendResult next = drive.append(kStay, 16);
    groups += next.status == KvStatus::ok ? 1 : 0;
    for (const FlushJob& job : next.jobs) {
      for (const PageOp& op : drive.ftl->flush_done(job.id)) drive.ftl->erase_done(op.ppa);
    }
    for (const PageOp& op : next.erases) drive.ftl->erase_done(op.ppa);
  }
  CHECK(drive.ftl->parked_pages() == 0);
  CHECK(drive.dram->used(DramUse::flush_pending) == Bytes{});
  drive.check_rows(kStay, 28 * 16);
  CHECK(drive.ftl->verify() == 0);
}

TEST_CASE("a block that failed before the power loss is emptied after it") {
  struct OneFailure final : MediaFaults {
    ReadOutcome read(PhysicalPageAddress, std::uint32_t, std::uint32_t) override { return {}; }
    bool program_fails(PhysicalPageAddress ppa, std::uint32_t) override { return ppa.value == 5; }
    bool erase_fails(BlockId, std::uint32_t) override { return false; }
  } media;
  Drive drive(kSmall, TailPolicy::token_index, &media);
  drive.ftl->create_sequence(kStay, {1, 1, 16, 0, false});
  for (int i = 0; i < 3; ++i) run(drive, drive.append(kStay, 16));
  REQUIRE(drive.blocks->state(BlockId{0}) == BlockState::retired);
  const RecoveryResult result = drive.recover(drive.ftl->power_loss());
  CHECK(result.pages == 6);
  CHECK(drive.blocks->state(BlockId{0}) == BlockState::retired);
  CHECK(drive.blocks->valid_pages(BlockId{0}) == 5);
  CHECK(drive.blocks->spare_blocks_left(PlaneId{0}) == 1);
  run(drive, drive.append(kStay, 16));
  CHECK(drive.blocks->state(BlockId{0}) == BlockState::bad);
  // Its pages are read until the moves are done, and after a power loss.
  CHECK(drive.recover(drive.ftl->power_loss()).pages == 8);
  CHECK(drive.blocks->state(BlockId{0}) == BlockState::bad);
  drive.check_rows(kStay, 64);
}

TEST_CASE("a page that is nowhere is reported, and so is every sequence that needs it") {
  Drive drive(kSmall);
  drive.ftl->create_sequence(kStay, {1, 1, 16, 0});
  drive.ftl->create_sequence(kGo, {1, 1, 16, 0});
  run(drive, drive.append(kStay, 40));
  run(drive, drive.append(kGo, 40));
  REQUIRE(drive.ftl->fork_sequence(kGo, SequenceId{3}) == KvStatus::ok);
  const AppendResult pending = drive.append(kGo, 16);
  KvDump dump = drive.ftl->power_loss();
  REQUIRE(dump.images.size() == 2);
  SECTION("in flight: only the sequence that wrote it") {
    PowerLoss loss;
    for (const PageOp& op : pending.jobs.at(0).programs) loss.unprogrammed.push_back(op.ppa);
    drive.store.lose_power(loss);
    dump.images.pop_back();
    const RecoveryResult result = drive.recover(dump);
    REQUIRE(result.lost_pages.size() == 1);
    CHECK(result.lost_pages[0] == KvPageId{{kGo, {}, {}}, PageKind::token_v, 2, 0});
    CHECK(result.lost_sequences == std::vector{kGo});
    drive.check_rows(kStay, 40);
    CHECK(drive.ftl->tokens({SequenceId{3}, {}, {}}) == 40);
    CHECK(drive.ftl->free_sequence(SequenceId{3}).status == KvStatus::ok);
  }
  SECTION("shared: its fork, too") {
    PhysicalPageAddress gone;
    drive.ftl->visit_pages([&](const KvPageId& page, PhysicalPageAddress ppa) {
      if (page.key.sequence == kGo && page.kind == PageKind::token_k && page.group == 1) gone = ppa;
    });
    drive.store.lose_power({{gone}, {}, {}});
    const RecoveryResult result = drive.recover(dump);
    REQUIRE(result.lost_pages.size() == 1);
    CHECK(result.lost_pages[0] == KvPageId{{kGo, {}, {}}, PageKind::token_k, 1, 0});
    CHECK(result.lost_sequences == std::vector{kGo, SequenceId{3}});
    CHECK(drive.ftl->check({SequenceId{3}, {}, {}}) == KvStatus::bad_sequence);
    drive.check_rows(kStay, 40);
  }
  CHECK(drive.ftl->check({kGo, {}, {}}) == KvStatus::bad_sequence);
  for (const PageOp& op : drive.ftl->free_sequence(kStay).erases) drive.ftl->erase_done(op.ppa);
  CHECK(drive.dram->used() == Bytes{});
  CHECK(drive.blocks->valid_pages(Namespace::kv) == 0);
}

TEST_CASE("a recovery that cannot be is refused") {
  Drive drive(kSmall);
  drive.ftl->create_sequence(kStay, {1, 1, 16, 0});
  const KvDump dump = drive.ftl->power_loss();
  CHECK_THROWS_AS(drive.ftl->recover(dump), InternalError);
  drive.config.tail = TailPolicy::dram;
  drive.switch_on();
  CHECK_THROWS_WITH(drive.ftl->recover(dump), Catch::Contains("tail policy"));
  KvDrive timing(kSmall, {}, DataMode::timing);
  CHECK_THROWS_WITH(timing.ftl.power_loss(), Catch::Contains("timing mode"));
  CHECK_THROWS_WITH(timing.ftl.recover(dump), Catch::Contains("timing mode"));
}

TEST_CASE("all cuts of all small histories of two sequences lose nothing, with every policy and tail") {
  const durability::KvReport all = durability::search_exhaustively(kRegistry, 2);
  INFO((all.broken ? durability::to_text(*all.broken) : ""));
  CHECK_FALSE(all.broken);
  const durability::KvCoverage& c = all.coverage;
  CHECK(c.cuts > 10'000);
  CHECK((c.torn > 1000 && c.saved > 1000 && c.windows > 1000));
}

TEST_CASE("all cuts of all histories of three commands of two sequences", "[.]") {
  const durability::KvReport all = durability::search_exhaustively(kRegistry, 3);
  INFO((all.broken ? durability::to_text(*all.broken) : ""));
  CHECK_FALSE(all.broken);
  CHECK(all.coverage.cuts > 1'000'000);
}

TEST_CASE("power fails a million times at random in long histories", "[.]") {
  const durability::KvReport all = durability::search_randomly(kRegistry, {.cuts = 1'000'000, .seed = 43});
  INFO((all.broken ? durability::to_text(*all.broken) : ""));
  CHECK_FALSE(all.broken);
}

TEST_CASE("power fails at random in long histories, which go on afterwards") {
  const durability::KvReport all = durability::search_randomly(kRegistry, {.cuts = 6000, .seed = 101});
  INFO((all.broken ? durability::to_text(*all.broken) : ""));
  CHECK_FALSE(all.broken);
  // The histories must have reached the corners.
  const durability::KvCoverage& c = all.coverage;
  CHECK(c.cuts >= 6000);
  CHECK((c.torn > 100 && c.half_erased > 20 && c.undone_erases > 20));
  CHECK((c.saved > 100 && c.rebuilt > 100 && c.stale > 1000));
  CHECK((c.evacuated > 10 && c.parked > 10 && c.cuts_in_recovery > 100));
  CHECK((c.collected > 100 && c.forks > 100 && c.bad_blocks > 3 && c.refused > 20));
  CHECK((c.partial_windows > 10 && c.few_bits > 300 && c.lost_sequences > 20));
}

}  // namespace test_kv_recovery
