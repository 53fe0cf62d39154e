// Power loss at any operation of the block namespace: what is durable is never lost.
#include <catch2/catch.hpp>
#include <iostream>

#include "base/error.h"
#include "base/rng.h"
#include "block_drive.h"
#include "ftl/durability/search.h"

namespace test_block_recovery {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::durability;

namespace {

void check(const char* what, const Report& report) {
  const CutCoverage& c = report.coverage;
  std::cout << what << ": " << c.cuts << " cuts in " << report.cases << " histories, " << c.cuts_in_recovery
            << " during a recovery; word lines torn " << c.torn << ", blocks half erased " << c.half_erased
            << ", erases undone " << c.undone_erases << "; pages found " << c.found << ", stale " << c.stale
            << ", trimmed " << c.trimmed << ", saved " << c.saved << "; older versions " << c.older_versions
            << "; blocks collected " << c.collected << ", bad " << c.bad_blocks << "; drives read-only " << c.read_only
            << "\n";
  if (report.broken) FAIL(to_text(*report.broken));
}

}  // namespace

TEST_CASE("before an erase the word lines of what it would take are filled, where power takes what is in DRAM") {
  constexpr std::uint32_t kLine = 3;
  const FlashGeometry g{1, 1, 1, 16, 12 * kLine, Bytes{16}};
  const auto stats = [&](bool volatile_lines, std::uint32_t units_per_program) {
    test::BlockDrive drive(
        g, {16, 0}, DataMode::timing,
        {.over_provisioning = 0.3, .units_per_program = units_per_program, .volatile_lines = volatile_lines});
    drive.ftl.precondition(drive.ftl.capacity(), 1);
    Rng rng(3);
    for (int i = 0; i < 20'000; ++i) drive.ftl.write(Bytes{16} * rng.below(drive.pages()), Bytes{16});
    check_mapping(drive);
    return drive.ftl.stats();
  };
  const BlockFtlStats open = stats(false, kLine), filled = stats(true, kLine);
  CHECK(open.padded_pages == 0);
  CHECK(stats(true, 1).padded_pages == 0);
  CHECK(filled.padded_pages > 0);
  // At most one line of moved pages, and on one plane one of the host.
  CHECK(filled.padded_pages <= 2 * (kLine - 1) * filled.gc_erases);
  CHECK(filled.work().padding == filled.padded_pages);
  CHECK(filled.gc_erases > 500);
}

TEST_CASE("trims are saved by a flush, and by the next erase") {
  const FlashGeometry g{1, 1, 1, 12, 4, Bytes{16}};
  test::BlockDrive drive(g, {12, 0}, DataMode::timing);
  drive.ftl.write(Bytes{}, Bytes{32});
  drive.ftl.trim(Bytes{}, Bytes{16});
  CHECK(drive.ftl.has_unsaved_trims());
  drive.ftl.trims_saved(drive.ftl.trims());
  CHECK_FALSE(drive.ftl.has_unsaved_trims());
  drive.ftl.trim(Bytes{16}, Bytes{16});
  CHECK(drive.ftl.has_unsaved_trims());
  for (int i = 0; drive.ftl.stats().gc_erases == 0; ++i) {
    REQUIRE(i < 1'000);
    drive.ftl.write(Bytes{16}, Bytes{16});
  }
  CHECK_FALSE(drive.ftl.has_unsaved_trims());
}

TEST_CASE(
    "an erase that had not completed before the power failed is not counted, also of a block that was erased twice") {
  const FlashGeometry g{1, 1, 1, 12, 4, Bytes{16}};
  const std::uint32_t times = GENERATE(1U, 2U);
  test::BlockDrive drive(g, {12, 0}, DataMode::carried);
  const std::vector<std::byte> data(16, std::byte{7});
  for (int i = 0; drive.ftl.stats().gc_erases < 30; ++i) {
    REQUIRE(i < 1'000);
    drive.ftl.write(Bytes{16} * static_cast<std::uint64_t>(i % 3), Bytes{16}, data);
  }
  const auto records = drive.blocks.records();
  const auto erased =
      std::ranges::find_if(records, [](const BlockRecord& r) { return r.state == BlockState::free && r.erases >= 2; });
  REQUIRE(erased != records.end());
  const std::vector<BlockId> unerased(times, erased->block);
  const BlockDump dump = drive.ftl.power_loss({.capacitors = true, .in_dram = {}, .unerased = unerased});
  drive.blocks = BlockManager(g, {12, 0});
  drive.ftl.forget();
  drive.ftl.recover(dump);
  CHECK(drive.blocks.erase_count(erased->block) == erased->erases - times);
}

TEST_CASE("a block in which a program has failed before a cut is emptied by the next write after it") {
  struct FailingPage final : MediaFaults {
    ReadOutcome read(PhysicalPageAddress, std::uint32_t, std::uint32_t) override { return {}; }
    bool program_fails(PhysicalPageAddress ppa, std::uint32_t) override { return ppa.value == 2; }
    bool erase_fails(BlockId, std::uint32_t) override { return false; }
  } faults;
  const FlashGeometry g{1, 1, 1, 12, 4, Bytes{16}};
  const BlockManagerConfig spare{.spare_blocks = 2};
  test::BlockDrive drive(g, {10, 0}, DataMode::carried, {.volatile_lines = true}, spare, &faults);
  const auto write = [&](std::uint64_t page) {
    const std::vector<std::byte> data(16, static_cast<std::byte>(page + 1));
    REQUIRE(drive.ftl.write(Bytes{16} * page, Bytes{16}, data).status == IoStatus::ok);
  };
  for (std::uint64_t page = 0; page < 3; ++page) write(page);
  REQUIRE(drive.blocks.state(BlockId{0}) == BlockState::bad);
  // Nothing of what was moved out of the block is in flash when the power fails.
  std::vector<PhysicalPageAddress> in_dram;
  for (std::uint64_t page = 0; page < 3; ++page) in_dram.push_back(drive.ftl.lookup(LogicalPage{page}));
  const BlockDump dump = drive.ftl.power_loss({.capacitors = false, .in_dram = in_dram, .unerased = {}});
  drive.store.lose_power({{}, in_dram, {}});
  drive.blocks = BlockManager(g, {10, 0}, spare);
  drive.ftl.forget();
  CHECK(drive.ftl.recover(dump).pages == 2);
  CHECK(drive.blocks.state(BlockId{0}) == BlockState::retired);
  CHECK(drive.blocks.valid_pages(BlockId{0}) == 2);
  write(5);
  CHECK(drive.blocks.state(BlockId{0}) == BlockState::bad);
  CHECK(drive.blocks.valid_pages(BlockId{0}) == 0);
  std::vector<std::byte> read(32);
  Phase ops;
  REQUIRE(drive.ftl.read(Bytes{}, Bytes{32}, read, ops) == IoStatus::ok);
  CHECK(read[0] == std::byte{1});
  CHECK(read[16] == std::byte{2});
}

TEST_CASE("a recovery of the block namespace that cannot be is refused") {
  const FlashGeometry g{1, 1, 1, 12, 4, Bytes{16}};
  test::BlockDrive drive(g, {8, 4}, DataMode::carried);
  const std::vector<std::byte> data(16);
  drive.ftl.write(Bytes{}, Bytes{16}, data);
  const BlockDump dump = drive.ftl.power_loss({});
  CHECK_THROWS_AS(drive.ftl.recover(dump), InternalError);  // it is in use
  test::BlockDrive timing(g, {12, 0}, DataMode::timing);
  CHECK_THROWS_WITH(timing.ftl.power_loss({}), Catch::Contains("timing mode"));
  CHECK_THROWS_WITH(timing.ftl.recover(dump), Catch::Contains("timing mode"));
}

TEST_CASE("the recovery of the block namespace leaves blocks of the KV namespace to the other") {
  const FlashGeometry g{1, 1, 1, 12, 4, Bytes{16}};
  test::BlockDrive drive(g, {8, 4}, DataMode::carried);
  const std::vector<std::byte> data(16, std::byte{7});
  drive.ftl.write(Bytes{}, Bytes{16}, data);
  const BlockId theirs = g.block_of(*drive.blocks.allocate(PlaneId{0}, Stream::kv));
  const BlockDump dump = drive.ftl.power_loss({});
  CHECK(dump.blocks.size() == 2);
  drive.blocks = BlockManager(g, {8, 4});
  drive.ftl.forget();
  const BlockRecovery found = drive.ftl.recover(dump);
  CHECK(found.oob_reads == 1);
  CHECK(found.pages == 1);
  CHECK(drive.blocks.state(theirs) == BlockState::free);
  std::vector<std::byte> read(16);
  Phase ops;
  REQUIRE(drive.ftl.read(Bytes{}, Bytes{16}, read, ops) == IoStatus::ok);
  CHECK(read == data);
}

TEST_CASE("a page of the dump whose plane has lost all its blocks goes to another plane, also where planes are fixed") {
  struct FailingPlane final : MediaFaults {
    bool fails = false;
    ReadOutcome read(PhysicalPageAddress, std::uint32_t, std::uint32_t) override { return {}; }
    bool program_fails(PhysicalPageAddress ppa, std::uint32_t) override { return fails && ppa.value < 12 * 4; }
    bool erase_fails(BlockId, std::uint32_t) override { return false; }
  } faults;
  const FlashGeometry g{2, 1, 1, 12, 4, Bytes{16}};
  test::BlockDrive drive(g, {12, 0}, DataMode::carried, {.allocation = PageAllocation::fixed}, {}, &faults);
  const std::vector<std::byte> data(16, std::byte{7});
  drive.ftl.write(Bytes{}, Bytes{16}, data);
  const PhysicalPageAddress in_dram = drive.ftl.lookup(LogicalPage{0});
  REQUIRE(g.plane_of(in_dram) == PlaneId{0});
  const BlockDump dump = drive.ftl.power_loss({.capacitors = true, .in_dram = {in_dram}, .unerased = {}});
  drive.store.lose_power({{}, {in_dram}, {}});
  drive.blocks = BlockManager(g, {12, 0});
  drive.ftl.forget();
  faults.fails = true;
  const BlockRecovery found = drive.ftl.recover(dump);
  CHECK(found.unwritten_pages == 0);
  CHECK(found.saved_pages == 1);
  CHECK(drive.ftl.read_only());
  CHECK(g.plane_of(drive.ftl.lookup(LogicalPage{0})) == PlaneId{1});
  std::vector<std::byte> read(16);
  Phase ops;
  REQUIRE(drive.ftl.read(Bytes{}, Bytes{16}, read, ops) == IoStatus::ok);
  CHECK(read == data);
}

TEST_CASE("a page that waits for two programs is saved once") {
  const FlashGeometry g{1, 1, 1, 12, 4, Bytes{16}};
  test::BlockDrive drive(g, {12, 0}, DataMode::carried);
  const std::vector<std::byte> data(16, std::byte{7});
  drive.ftl.write(Bytes{}, Bytes{16}, data);
  const PhysicalPageAddress page = drive.ftl.lookup(LogicalPage{0});
  const BlockDump dump = drive.ftl.power_loss({.capacitors = true, .in_dram = {page, page}, .unerased = {}});
  CHECK(dump.in_dram == 1);
  CHECK(dump.images.size() == 1);
}

TEST_CASE("a page of the dump that finds no room in a drive that has become read-only stays in memory") {
  struct FailingFlash final : MediaFaults {
    bool fails = false;
    ReadOutcome read(PhysicalPageAddress, std::uint32_t, std::uint32_t) override { return {}; }
    bool program_fails(PhysicalPageAddress, std::uint32_t) override { return fails; }
    bool erase_fails(BlockId, std::uint32_t) override { return false; }
  } faults;
  const FlashGeometry g{2, 1, 1, 12, 4, Bytes{16}};
  test::BlockDrive drive(g, {12, 0}, DataMode::carried, {}, {}, &faults);
  const auto bytes = [](int i) { return std::vector<std::byte>(16, static_cast<std::byte>(i)); };
  // Page 0 has an older version in flash, page 1 has none.
  drive.ftl.write(Bytes{}, Bytes{16}, bytes(1));
  const PhysicalPageAddress old = drive.ftl.lookup(LogicalPage{0});
  drive.ftl.write(Bytes{}, Bytes{16}, bytes(2));
  drive.ftl.write(Bytes{16}, Bytes{16}, bytes(3));
  std::vector<PhysicalPageAddress> in_dram{drive.ftl.lookup(LogicalPage{0}), drive.ftl.lookup(LogicalPage{1})};
  const auto loses_power = [&] {
    const BlockDump dump = drive.ftl.power_loss({.capacitors = true, .in_dram = in_dram, .unerased = {}});
    drive.store.lose_power({{}, in_dram, {}});
    drive.blocks = BlockManager(g, {12, 0});
    drive.ftl.forget();
    return drive.ftl.recover(dump);
  };
  const auto read = [&](std::uint64_t page) {
    std::vector<std::byte> found(16);
    Phase ops;
    REQUIRE(drive.ftl.read(Bytes{16} * page, Bytes{16}, found, ops) == IoStatus::ok);
    CHECK(ops.empty());
    return found;
  };
  faults.fails = true;
  for (int loss = 0; loss < 2; ++loss) {
    const BlockRecovery found = loses_power();
    CHECK(drive.ftl.read_only());
    CHECK(found.unwritten_pages == 2);
    CHECK(found.saved_pages == 0);
    CHECK_FALSE(drive.blocks.valid(old));
    CHECK(read(0) == bytes(2));
    CHECK(read(1) == bytes(3));
    CHECK(drive.ftl.stats().unwritten_reads == 0);
    in_dram.clear();
  }
}

TEST_CASE("a recovery writes the translation pages that differ from the map, and keeps the others") {
  // Four entries a translation page, and a cache of one entry.
  const FlashGeometry g{1, 1, 1, 16, 4, Bytes{16}};
  test::BlockDrive drive(g, {16, 0}, DataMode::carried, {.over_provisioning = 0.5, .map_cache_entries = 1});
  const std::vector<std::byte> data(16, std::byte{7});
  const auto write = [&](std::uint64_t page) {
    REQUIRE(drive.ftl.write(Bytes{16} * page, Bytes{16}, data).status == IoStatus::ok);
  };
  const auto cycle = [&] {
    const BlockDump dump = drive.ftl.power_loss({});
    drive.blocks = BlockManager(g, {16, 0});
    drive.ftl.forget();
    return drive.ftl.recover(dump);
  };
  for (const std::uint64_t page : {0u, 1u, 4u, 8u}) write(page);
  CHECK(drive.ftl.stats().map_pages_written == 3);  // pages 0, 1 and 4, whose entries made room
  const BlockRecovery first = cycle();
  CHECK(first.map_pages_written == 1);
  CHECK(first.pages == 6);
  const auto reads = [](const BlockRecovery& found) {
    std::size_t count = 0;
    for (const Phase& phase : found.plan.phases)
      for (const PageOp& op : phase) count += op.kind == PageOpKind::read && op.op_class == OpClass::map ? 1 : 0;
    return count;
  };
  CHECK(reads(first) == 2);  // the third was never written
  const BlockRecovery again = cycle();
  CHECK(again.map_pages_written == 0);
  CHECK(reads(again) == 3);
  CHECK(again.pages == 7);
  check_mapping(drive, (drive.pages() + 3) / 4);
}

TEST_CASE("a plane whose last free block takes translation pages of a victim has room after a cut") {
  using namespace durability;
  for (const GcPolicy kind : {GcPolicy::greedy, GcPolicy::cost_benefit, GcPolicy::random_greedy, GcPolicy::fifo})
    for (const std::uint32_t step : {1u, 2u, 3u, 4u})
      for (const std::uint64_t seed : {std::uint64_t{6061550790641805820}, std::uint64_t{1}, std::uint64_t{2}}) {
        Case c;
        c.setup.seed = seed;
        c.setup.capacitors = true;
        c.setup.filled = 1;
        c.setup.gc.kind = kind;
        c.setup.geometry = {2, 1, 2, 12, 60, Bytes{16}};
        c.setup.config.units_per_program = 12;
        c.setup.config.pads = true;
        c.setup.config.allocation = PageAllocation::fixed;
        c.setup.config.over_provisioning = 7.3 / 11;
        c.setup.config.map_cache_entries = 3;
        c.setup.config.gc_free_blocks = 1;
        c.setup.config.gc_step_pages = step;
        c.setup.config.check = PageCheck::key_and_crc;
        c.steps = {{Step::Kind::cut, {}}};
        const CaseResult result = run_case(c, false);
        INFO(to_string(c.setup));
        CHECK((result.violation ? result.violation->what : "") == "");
      }
}

TEST_CASE("every cut of every history of up to two commands loses nothing that was durable") {
  const Report report = search_exhaustively(2, {});
  check("block power loss, all histories of two commands", report);
}

TEST_CASE("every cut of every history of three commands", "[.]") {
  check("block power loss, all histories of three commands", search_exhaustively(3, {}));
}

TEST_CASE("cuts at random lose nothing that was durable, and the drive goes on") {
  const Report report = search_randomly({.cuts = 30'000});
  check("block power loss, random histories", report);
  // The histories must have reached the corners.
  const CutCoverage& c = report.coverage;
  CHECK(c.torn > 1'000);
  CHECK(c.half_erased > 500);
  CHECK(c.undone_erases > 1'000);
  CHECK(c.trimmed > 1'000);
  CHECK(c.saved > 1'000);
  CHECK(c.map_pages > 1'000);
  CHECK(c.cuts_in_recovery > 1'000);
  CHECK(c.older_versions > 1'000);
  CHECK(c.bad_blocks > 100);
}

TEST_CASE("a million cuts at random", "[.]") {
  const Report report = search_randomly({.cuts = 1'000'000, .seed = 2});
  check("block power loss, random histories", report);
}

}  // namespace test_block_recovery
