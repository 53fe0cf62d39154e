// Placement handles: which blocks data of different handles share, and writing without a plan.
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "block_drive.h"

namespace test_placement_handles {

using namespace csdsim;
using namespace csdsim::ftl;
using csdsim::ftl::test::check_mapping;
using Drive = csdsim::ftl::test::BlockDrive;

namespace {

constexpr Bytes kPage{512};

struct Variant {
  FlashGeometry geometry;
  BlockFtlConfig block;
  BlockManagerConfig manager;
};

Variant variant(std::uint64_t seed) {
  Rng rng(seed, "handles");
  Variant v;
  v.geometry = {1 + static_cast<std::uint32_t>(rng.below(2)),       1,
                1 + static_cast<std::uint32_t>(rng.below(2)),       32,
                8 * (1 + static_cast<std::uint32_t>(rng.below(2))), kPage};
  v.block = {.over_provisioning = std::array{0.0, 0.07, 0.2}[rng.below(3)],
             .gc_free_blocks = 1 + static_cast<std::uint32_t>(rng.below(3)),
             .check = PageCheck::key_and_crc,
             .allocation = rng.below(3) == 0 ? PageAllocation::fixed : PageAllocation::dynamic,
             .gc_pace = rng.below(3) == 0 ? GcPace::blocks : GcPace::steps,
             .units_per_program = 1u << rng.below(3),
             .handles = 2 + static_cast<std::uint32_t>(rng.below(4)),
             .isolation = seed % 2 == 0 ? Isolation::initially : Isolation::persistently};
  if (v.block.isolation == Isolation::initially && rng.below(3) == 0) v.block.wear_spread = 4;
  if (v.block.units_per_program > 1 && rng.below(2) == 0)
    (rng.below(2) == 0 ? v.block.pads : v.block.volatile_lines) = true;
  v.manager.handles = v.block.handles;
  v.manager.gc.kind = static_cast<GcPolicy>(rng.below(4));
  v.manager.gc.choices = 4;
  return v;
}

struct Write {
  std::uint64_t page, pages;
  PlacementHandle handle;
};

/// Handles overwrite parts of their own at different rates, and now and then anything.
Write random_write(Rng& rng, std::uint64_t pages, std::uint32_t handles) {
  const auto handle = static_cast<std::uint32_t>(std::min(rng.below(handles), rng.below(handles)));
  const std::uint64_t part = pages / handles;
  const std::uint64_t first = rng.below(16) == 0 ? rng.below(pages) : handle * part + rng.below(part);
  return {first, 1 + rng.below(std::min<std::uint64_t>(6, pages - first)), PlacementHandle{handle}};
}

/// Two drives have the same blocks and map, and have counted the same.
void require_same(const Drive& a, const Drive& b) {
  REQUIRE(a.blocks.records() == b.blocks.records());
  for (std::uint64_t p = 0; p < a.pages(); ++p) REQUIRE(a.ftl.lookup(LogicalPage{p}) == b.ftl.lookup(LogicalPage{p}));
  REQUIRE(a.ftl.stats().host_pages_written == b.ftl.stats().host_pages_written);
  REQUIRE(a.ftl.stats().host_bytes_written == b.ftl.stats().host_bytes_written);
  REQUIRE(a.ftl.stats().gc_pages_moved == b.ftl.stats().gc_pages_moved);
  REQUIRE(a.ftl.stats().gc_erases == b.ftl.stats().gc_erases);
}

}  // namespace

TEST_CASE("data of different handles share no block when the host writes them, and moved data as the rule says") {
  std::uint64_t mixed_blocks = 0, moved = 0, closed = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    const Variant v = variant(seed);
    CAPTURE(seed, v.block.handles, v.block.units_per_program, v.block.pads, v.block.volatile_lines);
    Drive drive(v.geometry, {v.geometry.blocks_per_plane, 0}, DataMode::carried, v.block, v.manager);
    struct Page {
      PlacementHandle handle;
      std::vector<std::byte> bytes;
    };
    std::map<std::uint64_t, Page> oracle;
    const auto check_blocks = [&] {
      std::map<std::uint32_t, std::set<std::uint32_t>> handles_of_block;
      for (const auto& [page, content] : oracle) {
        const PhysicalPageAddress ppa = drive.ftl.lookup(LogicalPage{page});
        REQUIRE(ppa.valid());
        handles_of_block[v.geometry.block_of(ppa).value].insert(content.handle.value);
      }
      for (const auto& [block, handles] : handles_of_block) {
        const Stream stream = drive.blocks.stream_of(BlockId{block});
        if (is_host_stream(stream) || v.block.isolation == Isolation::persistently) {
          REQUIRE(handles == std::set<std::uint32_t>{handle_of(stream).value});
        } else {
          mixed_blocks += handles.size() > 1 ? 1 : 0;
        }
      }
    };
    Rng rng(seed, "writes");
    for (int step = 0; step < 4000; ++step) {
      const Write w = random_write(rng, drive.pages(), v.block.handles);
      const Bytes offset = kPage * w.page, length = kPage * w.pages;
      if (rng.below(12) == 0) {
        REQUIRE(drive.ftl.trim(offset, length).status == IoStatus::ok);
        for (std::uint64_t p = w.page; p < w.page + w.pages; ++p) oracle.erase(p);
        continue;
      }
      std::vector<std::byte> data(length.value);
      for (std::byte& b : data) b = static_cast<std::byte>(rng.below(256));
      const IoPlan plan = drive.ftl.write(offset, length, data, nullptr, w.handle);
      REQUIRE(plan.status == IoStatus::ok);
      if (!v.block.pads) REQUIRE_NOTHROW(drive.run(plan));  // pads: no plan contains the units that stay empty
      for (std::uint64_t i = 0; i < w.pages; ++i) {
        const auto first = data.begin() + static_cast<std::ptrdiff_t>(i * kPage.value);
        oracle[w.page + i] = {w.handle, {first, first + static_cast<std::ptrdiff_t>(kPage.value)}};
      }
      if (step % 100 == 0) check_blocks();
    }
    check_blocks();
    check_mapping(drive);
    for (const auto& [page, content] : oracle) {
      std::vector<std::byte> read(kPage.value);
      drive.ftl.read(kPage * page, kPage, read);
      REQUIRE(read == content.bytes);
    }
    if (!v.block.pads) CHECK(drive.flash.programs == drive.ftl.stats().work().programmed());
    moved += drive.ftl.stats().gc_pages_moved;
    closed += drive.ftl.stats().closed_blocks;
  }
  CHECK(mixed_blocks > 100);
  CHECK(moved > 10'000);
  CHECK(closed > 10);
}

TEST_CASE("plans are the same where data is carried, page by page, and where it is not, in runs") {
  std::uint64_t in_group = 0, moved = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Variant v = variant(seed);
    CAPTURE(seed, v.block.handles, v.block.units_per_program, v.block.pads, v.block.volatile_lines);
    const BlockQuota quota{v.geometry.blocks_per_plane, 0};
    Drive pages(v.geometry, quota, DataMode::carried, v.block, v.manager);
    Drive runs(v.geometry, quota, DataMode::timing, v.block, v.manager);
    const ArrayTimes times{SimTime{3}, SimTime{50}, SimTime{200}};
    PlaneLoad loads[] = {{v.geometry, v.block.stripe_order, times, false},
                         {v.geometry, v.block.stripe_order, times, false}};
    const bool dynamic = v.block.allocation == PageAllocation::dynamic;
    if (dynamic && seed % 3 != 0) {
      pages.ftl.place_by(loads[0]);
      runs.ftl.place_by(loads[1]);
    }
    Rng rng(seed, "plans");
    for (int step = 0; step < 1500; ++step) {
      const Write w = random_write(rng, pages.pages(), v.block.handles);
      Bytes offset = kPage * w.page, length = kPage * w.pages;
      if (rng.below(4) == 0) {  // parts of the first and the last page
        const Bytes before{rng.below(kPage.value)};
        offset += before;
        length = length - before - Bytes{rng.below((length - before).value)};
      }
      std::optional<PlaneId> group;
      if (dynamic && rng.below(4) == 0) group = PlaneId{static_cast<std::uint32_t>(rng.below(v.geometry.planes()))};
      const std::vector<std::byte> data(length.value);
      const IoPlan expected = pages.ftl.write(offset, length, data, nullptr, w.handle, group);
      const IoPlan plan = runs.ftl.write(offset, length, {}, nullptr, w.handle, group);
      CAPTURE(step, w.page, w.pages, w.handle.value, offset.value, length.value, group.has_value(), v.geometry.planes(),
              v.geometry.pages_per_block);
      REQUIRE(plan.status == expected.status);
      REQUIRE(plan.behind == expected.behind);
      REQUIRE(plan.phases.size() == expected.phases.size());
      for (std::size_t p = 0; p < plan.phases.size(); ++p) {
        REQUIRE(plan.phases[p].size() == expected.phases[p].size());
        for (std::size_t i = 0; i < plan.phases[p].size(); ++i) {
          const PageOp &op = plan.phases[p][i], &other = expected.phases[p][i];
          CAPTURE(p, i, plan.behind, plan.phases.size(), int(op.kind), int(other.kind));
          REQUIRE(op.ppa.value == other.ppa.value);
          REQUIRE(op.kind == other.kind);
          REQUIRE(op.op_class == other.op_class);
          REQUIRE(op.channel_bytes == other.channel_bytes);
        }
      }
      in_group += group ? w.pages : 0;
    }
    for (std::uint64_t p = 0; p < pages.pages(); ++p)
      REQUIRE(runs.ftl.lookup(LogicalPage{p}) == pages.ftl.lookup(LogicalPage{p}));
    moved += runs.ftl.stats().gc_pages_moved;
    CHECK(runs.ftl.stats().gc_pages_moved == pages.ftl.stats().gc_pages_moved);
  }
  CHECK(in_group > 5'000);
  CHECK(moved > 10'000);
}

TEST_CASE("a write that joins a word line goes where its plan would, and pays for the same collection") {
  std::uint64_t joined = 0, paid = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Variant v = variant(seed);
    CAPTURE(seed, v.block.units_per_program, v.block.pads);
    const BlockQuota quota{v.geometry.blocks_per_plane, 0};
    Drive planned(v.geometry, quota, DataMode::timing, v.block, v.manager);
    Drive joins(v.geometry, quota, DataMode::timing, v.block, v.manager);
    const ArrayTimes times{SimTime{3}, SimTime{50}, SimTime{200}};
    PlaneLoad loads[] = {{v.geometry, v.block.stripe_order, times, false},
                         {v.geometry, v.block.stripe_order, times, false}};
    if (v.block.allocation == PageAllocation::dynamic && seed % 3 != 0) {
      planned.ftl.place_by(loads[0]);
      joins.ftl.place_by(loads[1]);
    }
    Rng rng(seed, "joins");
    for (int step = 0; step < 1500; ++step) {
      const Write w = random_write(rng, planned.pages(), v.block.handles);
      const Bytes offset = kPage * w.page, length = kPage * (rng.below(2) == 0 ? 1 : w.pages);
      CAPTURE(step, w.page, w.handle.value, length.value);
      const IoPlan plan = planned.ftl.write(offset, length, {}, nullptr, w.handle);
      const auto part = joins.ftl.write_in_line(offset, length, w.handle);
      if (!part) {
        ++refused;
        REQUIRE(joins.ftl.write(offset, length, {}, nullptr, w.handle).phases.size() == plan.phases.size());
        continue;
      }
      ++joined;
      REQUIRE(plan.status == IoStatus::ok);
      REQUIRE(plan.behind == part->behind.size());
      REQUIRE(plan.phases.size() == 1 + plan.behind);
      const Phase& programs = plan.phases.front();
      REQUIRE(programs.size() == length.value / kPage.value);
      for (std::size_t i = 0; i < programs.size(); ++i) {
        REQUIRE(programs[i].ppa.value == part->first.value + i);
        REQUIRE(((programs[i].ppa.value + 1) % v.block.units_per_program == 0) == part->program.has_value());
      }
      REQUIRE(part->plane == v.geometry.plane_of(part->first));
      for (std::size_t p = 0; p < part->behind.size(); ++p) {
        REQUIRE(std::ranges::equal(part->behind[p], plan.phases[1 + p], {}, &PageOp::ppa, &PageOp::ppa));
        paid += part->behind[p].size();
      }
    }
    require_same(planned, joins);
  }
  CHECK(joined > 5'000);
  CHECK(paid > 1'000);
  CHECK(refused > 10'000);
}

TEST_CASE("writes that join a word line together are as those that join it one by one") {
  std::uint64_t together = 0, cut = 0, collected = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Variant v = variant(seed);
    CAPTURE(seed, v.block.units_per_program);
    const BlockQuota quota{v.geometry.blocks_per_plane, 0};
    Drive many(v.geometry, quota, DataMode::timing, v.block, v.manager);
    Drive single(v.geometry, quota, DataMode::timing, v.block, v.manager);
    Rng rng(seed, "together");
    const auto write = [&](Bytes offset, Bytes length, PlacementHandle handle) {
      REQUIRE(many.ftl.write(offset, length, {}, nullptr, handle).status ==
              single.ftl.write(offset, length, {}, nullptr, handle).status);
    };
    for (int step = 0; step < 1500; ++step) {
      const Write w = random_write(rng, many.pages(), v.block.handles);
      const auto most = static_cast<std::uint32_t>(1 + rng.below(6));
      const Bytes offset = kPage * w.page, length = kPage * (rng.below(3) == 0 ? w.pages : 1);
      CAPTURE(step, w.page, w.handle.value, length.value, most);
      const auto parts = many.ftl.write_in_line(offset, length, w.handle, most);
      if (!parts) {
        REQUIRE_FALSE(single.ftl.write_in_line(offset, length, w.handle));
        write(offset, length, w.handle);
        continue;
      }
      REQUIRE(parts->writes >= 1);
      REQUIRE(parts->writes <= most);
      for (std::uint32_t i = 0; i < parts->writes; ++i) {
        const auto part = single.ftl.write_in_line(offset + length * i, length, w.handle);
        REQUIRE(part);
        REQUIRE(part->first.value == parts->first.value + i * (length.value / kPage.value));
        REQUIRE(part->plane == parts->plane);
        REQUIRE(part->behind.size() == parts->behind.size());
        REQUIRE(single.ftl.wants_background_step(part->plane) == many.ftl.wants_background_step(part->plane));
        if (parts->writes > 1) REQUIRE(part->behind.empty());
        if (parts->writes > 1) REQUIRE_FALSE(single.ftl.wants_background_step(part->plane));
        collected += part->behind.size();
      }
      together += parts->writes > 1;
      cut += parts->writes < most;
    }
    REQUIRE(many.blocks.records() == single.blocks.records());
    for (std::uint64_t p = 0; p < many.pages(); ++p)
      REQUIRE(many.ftl.lookup(LogicalPage{p}) == single.ftl.lookup(LogicalPage{p}));
    const BlockFtlStats &a = many.ftl.stats(), &b = single.ftl.stats();
    REQUIRE(a.host_pages_written == b.host_pages_written);
    REQUIRE(a.host_bytes_written == b.host_bytes_written);
    REQUIRE(a.gc_pages_moved == b.gc_pages_moved);
    REQUIRE(a.gc_erases == b.gc_erases);
  }
  CHECK(together > 500);
  CHECK(cut > 500);
  CHECK(collected > 500);
}

TEST_CASE("bytes that are not whole pages, or that the drive has not got, join no word line") {
  const FlashGeometry g{1, 1, 2, 8, 8, kPage};
  BlockFtlConfig config;
  config.units_per_program = 4;
  Drive drive(g, {8, 0}, DataMode::timing, config);
  drive.ftl.write(Bytes{0}, kPage);  // opens a block
  CHECK_FALSE(drive.ftl.write_in_line(Bytes{1}, kPage, {}));
  CHECK_FALSE(drive.ftl.write_in_line(Bytes{0}, kPage - Bytes{1}, {}));
  CHECK_FALSE(drive.ftl.write_in_line(drive.ftl.capacity(), kPage, {}));
  CHECK(drive.ftl.write_in_line(Bytes{0}, kPage * 2, {})->first.value == 1);
  CHECK_FALSE(drive.ftl.write_in_line(Bytes{0}, kPage, {}));  // it would fill the line
}

TEST_CASE("100 random workloads wear a drive without plans exactly as with them") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    Variant v = variant(seed);
    if (seed % 5 == 0) {
      v.block.handles = v.manager.handles = 1;
      v.block.map_cache_entries = v.block.units_per_program == 1 && seed % 10 == 0 ? std::optional(40) : std::nullopt;
    }
    const BlockQuota quota{v.geometry.blocks_per_plane, 0};
    Drive planned(v.geometry, quota, DataMode::timing, v.block, v.manager);
    Drive state(v.geometry, quota, DataMode::timing, v.block, v.manager);
    Rng rng(seed, "writes");
    for (int step = 0; step < 2000; ++step) {
      const Write w = random_write(rng, planned.pages(), v.block.handles);
      const Bytes offset = kPage * w.page, length = kPage * w.pages;
      if (rng.below(12) == 0) {
        planned.ftl.trim(offset, length);
        state.ftl.trim(offset, length);
      } else {
        REQUIRE(planned.ftl.write(offset, length, {}, nullptr, w.handle).status == IoStatus::ok);
        REQUIRE(state.ftl.write_state(offset, length, w.handle) == IoStatus::ok);
      }
    }
    require_same(planned, state);
    const BlockFtlStats &a = planned.ftl.stats(), &b = state.ftl.stats();
    for (const WriteWork::Part& part : WriteWork::parts()) {
      CAPTURE(part.name);
      REQUIRE(a.work().*part.pages == b.work().*part.pages);
    }
    CHECK(a.gc_erases > 0);
  }
}

TEST_CASE("handles that nobody uses change nothing") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Variant v = variant(seed);
    v.block.isolation = Isolation::initially;
    const BlockQuota quota{v.geometry.blocks_per_plane, 0};
    Drive many(v.geometry, quota, DataMode::timing, v.block, v.manager);
    v.block.handles = v.manager.handles = 1;
    Drive one(v.geometry, quota, DataMode::timing, v.block, v.manager);
    REQUIRE(many.pages() == one.pages());
    Rng rng(seed, "writes");
    for (int step = 0; step < 2000; ++step) {
      const Write w = random_write(rng, one.pages(), 2);
      many.ftl.write(kPage * w.page, kPage * w.pages);
      one.ftl.write(kPage * w.page, kPage * w.pages);
    }
    REQUIRE(many.blocks.records() == one.blocks.records());
    CHECK(many.ftl.stats().gc_erases > 0);
  }
}

TEST_CASE("runs of pages are handed out and lost as single pages are") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const FlashGeometry g{1, 1, 1, 6, 130, kPage};
    BlockManager single(g, {6, 0}), runs(g, {6, 0});
    Rng rng(seed, "runs");
    for (int step = 0; step < 60; ++step) {
      const auto most = static_cast<std::uint32_t>(1 + rng.below(140));
      if (rng.below(3) > 0) {
        const auto first = runs.allocate(PlaneId{0}, Stream::host);  // opens a block
        REQUIRE(single.allocate(PlaneId{0}, Stream::host) == first);
        if (!first) break;
        const BlockManager::PageRun run = runs.allocate_run(PlaneId{0}, Stream::host, most);
        for (std::uint32_t i = 0; i < run.count; ++i)
          REQUIRE(single.allocate(PlaneId{0}, Stream::host)->value == run.first.value + i);
      } else {
        const BlockId block{static_cast<std::uint32_t>(rng.below(6))};
        const auto page = runs.next_valid(block, static_cast<std::uint32_t>(rng.below(g.pages_per_block)));
        if (!page) continue;
        const std::uint32_t count = runs.valid_run(block, *page, most);
        bool empty = false;
        for (std::uint32_t i = 0; i < count; ++i) empty = single.invalidate({runs.first_page(block).value + *page + i});
        REQUIRE(runs.invalidate_run({runs.first_page(block).value + *page}, count) == empty);
        REQUIRE(runs.next_valid(block, *page) == single.next_valid(block, *page));
      }
      REQUIRE(runs.victim(PlaneId{0}, Namespace::block) == single.victim(PlaneId{0}, Namespace::block));
      REQUIRE(runs.valid_pages(Namespace::block) == single.valid_pages(Namespace::block));
      REQUIRE(runs.available_pages(Namespace::block) == single.available_pages(Namespace::block));
      for (std::uint32_t b = 0; b < 6; ++b) REQUIRE(runs.valid_pages(BlockId{b}) == single.valid_pages(BlockId{b}));
    }
    const PhysicalPageAddress lost{runs.first_page(BlockId{0}).value + 129};
    if (!runs.valid(lost)) CHECK_THROWS_AS(runs.invalidate_run({lost.value - 1}, 2), InternalError);
    CHECK_THROWS_AS(runs.invalidate_run(lost, 2), InternalError);
  }
}

TEST_CASE("handles that a drive cannot have are refused") {
  const FlashGeometry g{1, 1, 1, 32, 8, kPage};
  const auto make = [&](const BlockFtlConfig& config, std::uint32_t handles) {
    return Drive(g, {32, 0}, DataMode::timing, config, {.handles = handles}).pages();
  };
  CHECK_THROWS_AS(make({}, 0), UserError);
  CHECK_THROWS_AS(make({.handles = 129}, 129), UserError);
  CHECK_THROWS_AS(make({.handles = 2}, 3), InternalError);
  CHECK_THROWS_AS(make({.wear_spread = 4, .handles = 2, .isolation = Isolation::persistently}, 2), UserError);
  // 28 handles may have 28 open blocks; one is open for collection, one is free for it, and at two it begins.
  CHECK_THROWS_AS(make({.handles = 28}, 28), UserError);
  CHECK(make({.handles = 27}, 27) > 0);
  Drive drive(g, {32, 0}, DataMode::timing, {.handles = 2}, {.handles = 2});
  CHECK_THROWS_AS(drive.ftl.write(Bytes{}, kPage, {}, nullptr, PlacementHandle{2}), InternalError);
}

}  // namespace test_placement_handles
