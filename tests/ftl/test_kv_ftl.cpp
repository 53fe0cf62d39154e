#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <set>

#include "base/error.h"
#include "kv_fixture.h"

namespace test_kv_ftl {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

// P = 512, d = 16: n = 16 tokens per page; m = 4: T = 64 tokens, 4 embedding pages per window.
const FlashGeometry kGeometry{4, 2, 1, 16, 8, Bytes{512}};
const KvShape kShape{2, 3, 16, 256};
const SequenceId kSeq{7};
const HeadKey kKey{kSeq, LayerId{1}, KvHead{2}};

KvFtlConfig config(TailPolicy tail = TailPolicy::token_index) { return {tail, {4}}; }

AppendResult append(KvDrive& drive, std::uint32_t first, std::uint32_t count, HeadRange heads = {KvHead{2}, 1},
                    std::uint64_t seed = 1) {
  std::mt19937_64 rng(seed + first);
  const std::size_t size = drive.store.carried() ? std::size_t{heads.count} * count * 16 : 0;
  const std::vector<Half> keys = random_halves(rng, size);
  const std::vector<Half> values = random_halves(rng, size);
  return drive.ftl.append(kSeq, LayerId{1}, TokenIndex{first}, count, heads, keys, values);
}

std::size_t planned_token_reads(KvDrive& drive, std::uint32_t groups) {
  std::vector<std::uint32_t> all(groups);
  std::iota(all.begin(), all.end(), 0u);
  ReadPlan plan;
  drive.ftl.plan_token_groups(kKey, KvRows::keys, all, {}, plan);
  return plan.size();
}

std::size_t planned_embedding_reads(KvDrive& drive) {
  const std::vector<std::uint32_t> all{0, 1, 2, 3};
  ReadPlan plan;
  drive.ftl.plan_embedding_groups(kKey, all, {}, plan);
  return plan.size();
}

}  // namespace

TEST_CASE("a group is flushed when its last token arrives, and is read from DRAM until the flush is done") {
  KvDrive drive(kGeometry, config(), DataMode::carried);
  REQUIRE(drive.ftl.create_sequence(kSeq, kShape) == KvStatus::ok);
  CHECK(append(drive, 0, 15).jobs.empty());
  CHECK(drive.ftl.tokens(kKey) == 15);
  CHECK(drive.ftl.flushed_tokens(kKey) == 0);
  CHECK(drive.dram.used(DramUse::group_buffer) == Bytes{15 * 2 * 32});
  CHECK(planned_token_reads(drive, 1) == 0);

  const AppendResult full = append(drive, 15, 1);
  REQUIRE(full.status == KvStatus::ok);
  REQUIRE(full.jobs.size() == 1);
  CHECK(full.jobs[0].reads.empty());
  CHECK(full.jobs[0].programs.size() == 2);
  CHECK(full.jobs[0].programs[0].op_class == OpClass::flush);
  CHECK(full.jobs[0].programs[0].channel_bytes == 512);
  CHECK(drive.ftl.flushed_tokens(kKey) == 16);
  CHECK(drive.dram.used(DramUse::group_buffer) == Bytes{0});
  CHECK(drive.dram.used(DramUse::flush_pending) == Bytes{1024});
  CHECK(drive.dram.used(DramUse::map) == Bytes{16});
  CHECK(planned_token_reads(drive, 1) == 0);

  CHECK(drive.finish(full.jobs[0]).empty());
  CHECK(drive.dram.used(DramUse::flush_pending) == Bytes{0});
  CHECK(planned_token_reads(drive, 1) == 1);
  CHECK(drive.ftl.stats().lookups == 3);
  CHECK_THROWS_AS(drive.ftl.flush_done(full.jobs[0].id), InternalError);
}

TEST_CASE("a window that came token by token is read back, and is not readable before that is done") {
  KvDrive drive(kGeometry, config(), DataMode::carried);
  drive.ftl.create_sequence(kSeq, kShape);
  std::vector<FlushJob> held;
  for (std::uint32_t t = 0; t < 63; ++t) {
    for (FlushJob& job : append(drive, t, 1).jobs) {
      if (t / 16 == 1) {
        held.push_back(job);  // group 1 stays in DRAM
      } else {
        drive.finish(job);
      }
    }
  }
  const AppendResult last = append(drive, 63, 1);
  REQUIRE(last.jobs.size() == 2);
  const FlushJob& window = last.jobs[1];
  // Groups 0 and 2 are in flash; 1 is still held, 3 has just been filled.
  CHECK(window.reads.size() == 2);
  CHECK(window.programs.size() == 4);
  CHECK(drive.ftl.stats().read_back_pages == 2);
  CHECK(drive.ftl.transposed_tokens(kKey) == 0);
  CHECK(planned_embedding_reads(drive) == 0);
  CHECK_THROWS_AS(drive.ftl.embedding_page(kKey, 0, 0), InternalError);
  drive.finish(window);
  CHECK(drive.ftl.transposed_tokens(kKey) == 64);
  CHECK(planned_embedding_reads(drive) == 4);
  for (std::uint32_t i = 0; i < 16; ++i) {
    for (std::uint32_t t = 0; t < 64; ++t) {
      REQUIRE(drive.ftl.embedding_page(kKey, i / 4, 0)[(i % 4) * 64 + t] ==
              drive.ftl.token_row(kKey, KvKind::key, TokenIndex{t})[i]);
    }
  }
  for (const FlushJob& job : held) drive.finish(job);
  drive.finish(last.jobs[0]);
  CHECK(drive.ftl.pending_flushes() == 0);
  CHECK(drive.ftl.verify() == 0);
}

TEST_CASE("windows read back in the wrong order become readable in the right one") {
  KvDrive drive(kGeometry, config(), DataMode::timing);
  drive.ftl.create_sequence(kSeq, kShape);
  std::vector<FlushJob> windows;
  for (std::uint32_t t = 0; t < 128; ++t) {
    for (FlushJob& job : append(drive, t, 1).jobs) {
      if (job.programs.size() == 4) {
        windows.push_back(job);
      } else {
        drive.finish(job);
      }
    }
  }
  REQUIRE(windows.size() == 2);
  drive.finish(windows[1]);
  CHECK(drive.ftl.transposed_tokens(kKey) == 0);
  CHECK(planned_embedding_reads(drive) == 0);
  drive.finish(windows[0]);
  CHECK(drive.ftl.transposed_tokens(kKey) == 128);
  CHECK(planned_embedding_reads(drive) == 8);
}

TEST_CASE("a window that arrives whole, or is held in DRAM, is transposed without reading back") {
  SECTION("whole windows in one append") {
    KvDrive drive(kGeometry, config(), DataMode::carried);
    drive.ftl.create_sequence(kSeq, kShape);
    const AppendResult result = append(drive, 0, 130);
    REQUIRE(result.jobs.size() == 3);
    CHECK(result.jobs[0].programs.size() == 16);
    for (const FlushJob& job : result.jobs) CHECK(job.reads.empty());
    CHECK(drive.ftl.transposed_tokens(kKey) == 128);
    CHECK(planned_embedding_reads(drive) == 0);
    drive.finish(result.jobs[2]);
    CHECK(planned_embedding_reads(drive) == 4);
  }
  SECTION("tail policy dram") {
    KvDrive drive(kGeometry, config(TailPolicy::dram), DataMode::carried);
    drive.ftl.create_sequence(kSeq, kShape);
    for (std::uint32_t t = 0; t < 64; ++t) {
      for (FlushJob& job : append(drive, t, 1).jobs) {
        CHECK(job.reads.empty());
        drive.finish(job);
      }
      CHECK(drive.dram.used(DramUse::component_tail) == Bytes{(t + 1) % 64 * 32});
    }
    CHECK(drive.ftl.transposed_tokens(kKey) == 64);
    CHECK(drive.dram.peak(DramUse::component_tail) == Bytes{63 * 32});
    CHECK(drive.ftl.verify() == 0);
  }
}

TEST_CASE("bad arguments are a status and change nothing") {
  KvDrive drive(kGeometry, config(), DataMode::carried);
  CHECK(drive.ftl.create_sequence(kSeq, {0, 3, 16, 0}) == KvStatus::bad_shape);
  CHECK(drive.ftl.create_sequence(kSeq, {2, 70'000, 16, 0}) == KvStatus::bad_shape);
  CHECK(drive.ftl.create_sequence(kSeq, {2, 3, 512, 0}) == KvStatus::bad_shape);
  CHECK(append(drive, 0, 1).status == KvStatus::bad_sequence);
  REQUIRE(drive.ftl.create_sequence(kSeq, kShape) == KvStatus::ok);
  CHECK(drive.ftl.create_sequence(kSeq, kShape) == KvStatus::bad_sequence);

  const std::vector<Half> rows(3 * 16);
  const auto status = [&](std::uint32_t layer, std::uint32_t first, HeadRange heads, std::span<const Half> data) {
    return drive.ftl.append(kSeq, LayerId{layer}, TokenIndex{first}, 1, heads, data, data).status;
  };
  CHECK(status(2, 0, {KvHead{0}, 3}, rows) == KvStatus::bad_layer);
  CHECK(status(1, 0, {KvHead{1}, 3}, rows) == KvStatus::bad_head);
  CHECK(status(1, 0, {KvHead{~0u}, 3}, rows) == KvStatus::bad_head);
  CHECK(status(1, 1, {KvHead{0}, 3}, rows) == KvStatus::bad_token);
  CHECK(status(1, ~0u, {KvHead{0}, 3}, rows) == KvStatus::bad_token);
  CHECK(status(1, 0, {KvHead{0}, 2}, rows) == KvStatus::bad_data);
  CHECK(drive.dram.used() == Bytes{0});
  CHECK(status(1, 0, {KvHead{0}, 3}, rows) == KvStatus::ok);
  CHECK(status(1, 0, {KvHead{0}, 3}, rows) == KvStatus::bad_token);
  // Heads may run ahead of one another, but not within one call.
  CHECK(status(1, 1, {KvHead{0}, 1}, std::span(rows).first(16)) == KvStatus::ok);
  CHECK(status(1, 1, {KvHead{0}, 3}, rows) == KvStatus::bad_token);
  CHECK(drive.ftl.check({kSeq, LayerId{1}, KvHead{3}}) == KvStatus::bad_head);
  CHECK(drive.ftl.check({kSeq, LayerId{2}, KvHead{0}}) == KvStatus::bad_layer);
  CHECK(drive.ftl.check({SequenceId{8}, LayerId{0}, KvHead{0}}) == KvStatus::bad_sequence);
  CHECK(drive.ftl.check(kKey) == KvStatus::ok);
  CHECK(drive.ftl.free_sequence(SequenceId{8}).status == KvStatus::bad_sequence);
  CHECK_THROWS_AS(drive.ftl.tokens({SequenceId{8}, LayerId{0}, KvHead{0}}), InternalError);
  // Layers are 0 and 1, KV heads 0 to 2.
  CHECK_THROWS_AS(drive.ftl.tokens({kSeq, LayerId{2}, KvHead{0}}), InternalError);
  CHECK_THROWS_AS(drive.ftl.tokens({kSeq, LayerId{0}, KvHead{3}}), InternalError);
  CHECK_THROWS_AS(drive.ftl.token_row(kKey, KvKind::key, TokenIndex{1}), InternalError);
  KvDrive timing(kGeometry, config(), DataMode::timing);
  timing.ftl.create_sequence(kSeq, kShape);
  CHECK(timing.ftl.append(kSeq, LayerId{0}, TokenIndex{0}, 1, {KvHead{0}, 3}, rows, rows).status == KvStatus::bad_data);
}

TEST_CASE("DRAM: busy while flushes would make room, out_of_dram when nothing would") {
  // One group of one head: 1024 bytes of pages, 16 bytes of map, 64 bytes of mean.
  KvDrive drive(kGeometry, config(), DataMode::carried, Bytes{1024 + 16 + 64 + 16});
  drive.ftl.create_sequence(kSeq, kShape);
  CHECK(append(drive, 0, 32).status == KvStatus::out_of_dram);
  CHECK(drive.ftl.tokens(kKey) == 0);
  CHECK(drive.dram.used() == Bytes{0});
  const AppendResult first = append(drive, 0, 16);
  REQUIRE(first.status == KvStatus::ok);
  CHECK(append(drive, 16, 16).status == KvStatus::busy);
  CHECK(append(drive, 16, 32).status == KvStatus::out_of_dram);
  drive.finish(first.jobs[0]);
  CHECK(append(drive, 16, 16).status == KvStatus::ok);
  CHECK(drive.dram.peak() <= drive.dram.capacity());
}

TEST_CASE("flash: busy while erases would make room, out_of_space when nothing would") {
  // 3 planes of 3 blocks of 2 pages: 18 pages, of which a block stays free for collection; 8 groups of one head take
  // the others, without a complete window. Two of the planes end in an open block.
  KvFtlConfig c = config();
  c.layout.embedding_group = 1;
  KvDrive drive({3, 1, 1, 3, 2, Bytes{512}}, c, DataMode::timing);
  drive.ftl.create_sequence(kSeq, {2, 3, 16, 0});
  const AppendResult all = append(drive, 0, 128);
  REQUIRE(all.status == KvStatus::ok);
  CHECK(drive.ftl.stats().misplaced_pages == 0);
  const Bytes held = drive.dram.used();
  CHECK(append(drive, 128, 16).status == KvStatus::out_of_space);
  CHECK(drive.dram.used() == held);
  CHECK(append(drive, 128, 15).status == KvStatus::ok);
  // Freed, but its flush is in flight: pages and DRAM stay until it is done.
  CHECK(drive.ftl.free_sequence(kSeq).erases.empty());
  CHECK(drive.ftl.check(kKey) == KvStatus::bad_sequence);
  CHECK(drive.ftl.create_sequence(kSeq, kShape) == KvStatus::busy);
  const SequenceId other{8};
  drive.ftl.create_sequence(other, {1, 1, 16, 0});
  const auto append_other = [&] {
    return drive.ftl.append(other, LayerId{0}, TokenIndex{0}, 16, {KvHead{0}, 1}).status;
  };
  CHECK(append_other() == KvStatus::busy);
  const std::vector<PageOp> erases = drive.finish(all.jobs[0]);
  CHECK(erases.size() == 7);
  CHECK(drive.dram.used() == Bytes{0});
  CHECK(append_other() == KvStatus::busy);
  for (const PageOp& op : erases) drive.erase(op);
  CHECK(append_other() == KvStatus::ok);
  CHECK(drive.ftl.create_sequence(kSeq, kShape) == KvStatus::ok);
}

TEST_CASE("a pinned sequence keeps its pages until it is unpinned") {
  KvFtlConfig c = config();
  c.layout.embedding_group = 1;
  KvDrive drive({3, 1, 1, 3, 2, Bytes{512}}, c, DataMode::carried);
  drive.ftl.create_sequence(kSeq, kShape);
  for (const FlushJob& job : append(drive, 0, 128).jobs) drive.finish(job);
  REQUIRE(drive.ftl.pin(kSeq) == KvStatus::ok);
  REQUIRE(drive.ftl.pin(kSeq) == KvStatus::ok);
  CHECK(drive.ftl.free_sequence(kSeq).erases.empty());
  CHECK(drive.ftl.pin(kSeq) == KvStatus::bad_sequence);
  CHECK(drive.ftl.unpin(kSeq).empty());
  CHECK(drive.ftl.token_rows(kKey, KvKind::value, 7) != nullptr);  // whoever holds the pin still reads
  CHECK(drive.ftl.unpin(kSeq).size() == 7);
  CHECK(drive.store.integrity_errors() == 0);
  CHECK_THROWS_AS(drive.ftl.unpin(kSeq), InternalError);
}

TEST_CASE("the running mean of V is updated in token order") {
  KvDrive drive(kGeometry, config(), DataMode::carried);
  drive.ftl.create_sequence(kSeq, kShape);
  std::vector<Half> rows(5 * 16);
  for (std::size_t t = 0; t < 5; ++t) {
    for (std::size_t i = 0; i < 16; ++i) rows[t * 16 + i] = float_to_half(static_cast<float>(t * 3 + i));
  }
  CHECK_THROWS_AS(drive.ftl.value_mean(kKey), InternalError);
  drive.ftl.append(kSeq, LayerId{1}, TokenIndex{0}, 5, {KvHead{2}, 1}, rows, rows);
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(drive.ftl.value_mean(kKey)[i] == Approx(static_cast<double>(i) + 6.0));
  }
}

TEST_CASE("fault injection makes reads wrong and is reported") {
  KvDrive drive(kGeometry, config(), DataMode::carried);
  drive.ftl.create_sequence(kSeq, kShape);
  for (const FlushJob& job : append(drive, 0, 80, {KvHead{0}, 3}).jobs) drive.finish(job);
  REQUIRE(drive.ftl.verify() == 0);
  const auto row = [&](std::uint32_t token) {
    const Half* r = drive.ftl.token_row(kKey, KvKind::key, TokenIndex{token});
    return std::vector<Half>(r, r + 16);
  };
  const std::vector<Half> row0 = row(0);
  const std::vector<Half> row16 = row(16);

  SECTION("two token groups exchanged") {
    drive.ftl.swap_mapping({kKey, PageKind::token_k, 0, 0}, {kKey, PageKind::token_k, 1, 0});
    CHECK(row(0) == row16);
    CHECK(drive.store.integrity_errors() == 1);
    CHECK(drive.store.kept_integrity_errors()[0].expected.index == 0);
    CHECK(drive.store.kept_integrity_errors()[0].found.index == 1);
    CHECK(drive.ftl.verify() == 2);
    drive.ftl.swap_mapping({kKey, PageKind::token_k, 0, 0}, {kKey, PageKind::token_k, 1, 0});
    CHECK(row(0) == row0);
    CHECK(drive.ftl.verify() == 0);
  }
  SECTION("K and V, heads, and embedding pages exchanged") {
    const HeadKey other{kSeq, LayerId{1}, KvHead{0}};
    drive.ftl.swap_mapping({kKey, PageKind::token_k, 0, 0}, {kKey, PageKind::token_v, 0, 0});
    CHECK(drive.ftl.verify() == 2);
    drive.ftl.swap_mapping({kKey, PageKind::token_k, 2, 0}, {other, PageKind::token_k, 2, 0});
    CHECK(drive.ftl.verify() == 4);
    const std::uint64_t before = drive.store.integrity_errors();
    drive.ftl.swap_mapping({kKey, PageKind::embedding, 0, 0}, {kKey, PageKind::embedding, 3, 0});
    drive.ftl.embedding_page(kKey, 0, 0);
    CHECK(drive.store.integrity_errors() == before + 1);
    CHECK(drive.ftl.verify() == 6);
  }
  SECTION("one bit") {
    PhysicalPageAddress ppa;
    drive.ftl.visit_pages([&](const KvPageId& page, PhysicalPageAddress at) {
      if (page == KvPageId{kKey, PageKind::token_k, 0, 0}) ppa = at;
    });
    drive.store.flip_bit(ppa, 3);
    CHECK(row(0) != row0);
    CHECK(drive.store.integrity_errors() == 0);  // the key alone is right
    CHECK(drive.ftl.verify() == 1);
  }
  CHECK_THROWS_AS(drive.ftl.swap_mapping({kKey, PageKind::token_k, 5, 0}, {kKey, PageKind::token_k, 0, 0}), UserError);
  CHECK_THROWS_AS(drive.ftl.swap_mapping({kKey, PageKind::embedding, 4, 0}, {kKey, PageKind::token_k, 0, 0}),
                  UserError);
}

TEST_CASE("full checks on every read find a flipped bit when it is read") {
  KvFtlConfig c = config();
  c.check = PageCheck::key_and_crc;
  KvDrive drive(kGeometry, c, DataMode::carried);
  drive.ftl.create_sequence(kSeq, kShape);
  const AppendResult result = append(drive, 0, 16);
  drive.store.flip_bit(result.jobs[0].programs[1].ppa, 100);
  drive.ftl.token_rows(kKey, KvKind::key, 0);
  CHECK(drive.store.integrity_errors() == 0);
  drive.ftl.token_rows(kKey, KvKind::value, 0);
  CHECK(drive.store.integrity_errors() == 1);
}

TEST_CASE("timing and carried runs emit the same operations") {
  KvDrive timing(kGeometry, config(), DataMode::timing);
  KvDrive carried(kGeometry, config(), DataMode::carried);
  for (KvDrive* drive : {&timing, &carried}) drive->ftl.create_sequence(kSeq, kShape);
  std::uint32_t first = 0;
  for (const std::uint32_t count : {3u, 70u, 1u, 40u, 20u}) {
    const AppendResult a = append(timing, first, count, {KvHead{0}, 3});
    const AppendResult b = append(carried, first, count, {KvHead{0}, 3});
    first += count;
    REQUIRE(a.jobs.size() == b.jobs.size());
    for (std::size_t i = 0; i < a.jobs.size(); ++i) {
      REQUIRE(a.jobs[i].programs.size() == b.jobs[i].programs.size());
      REQUIRE(a.jobs[i].reads.size() == b.jobs[i].reads.size());
      for (std::size_t j = 0; j < a.jobs[i].programs.size(); ++j) {
        CHECK(a.jobs[i].programs[j].ppa == b.jobs[i].programs[j].ppa);
      }
      if (i % 2 == 0) {
        timing.finish(a.jobs[i]);
        carried.finish(b.jobs[i]);
      }
    }
  }
  CHECK(timing.dram.used() == carried.dram.used());
  CHECK(timing.dram.peak() == carried.dram.peak());
}

TEST_CASE("only layers that are appended to hold maps") {
  KvDrive drive({8, 8, 4, 64, 64, Bytes::kib(4)}, {}, DataMode::timing);
  REQUIRE(drive.ftl.create_sequence(kSeq, {40, 40, 128, 2048}) == KvStatus::ok);
  drive.ftl.append(kSeq, LayerId{3}, TokenIndex{0}, 1024, {KvHead{0}, 40});
  // m = 2 at 2048 tokens: one complete window, 64 embedding pages.
  CHECK(drive.dram.used(DramUse::map) == Bytes{40 * (2 * 64 + 64) * 8});
  CHECK(drive.ftl.tokens({kSeq, LayerId{2}, KvHead{0}}) == 0);
  CHECK(drive.ftl.tokens({kSeq, LayerId{3}, KvHead{39}}) == 1024);
  CHECK(drive.ftl.stats().misplaced_pages == 0);
}

}  // namespace test_kv_ftl
