// Pages of the KV namespace that cannot be read back: they stay lost wherever their content goes, and their tokens can
// be dropped.
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "kv_fixture.h"

namespace test_kv_losses {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

/// Reads of the pages that a test names fail, and all of a block that was read too often.
struct NamedLosses final : MediaFaults {
  ReadOutcome read(PhysicalPageAddress ppa, std::uint32_t, std::uint32_t reads) override {
    return {0, pages.contains(ppa.value) || reads >= lost_after};
  }
  bool program_fails(PhysicalPageAddress, std::uint32_t) override { return false; }
  bool erase_fails(BlockId, std::uint32_t) override { return false; }
  std::set<std::uint64_t> pages;
  std::uint32_t lost_after = ~std::uint32_t{0};  ///< reads of a block
};

const FlashGeometry kGeometry{2, 1, 1, 8, 8, Bytes{512}};  // 128 pages, of which 8 stay free
const SequenceId kStay{1};
const SequenceId kGo{2};
const HeadKey kKey{kStay, LayerId{0}, KvHead{0}};

struct Losing {
  explicit Losing(bool component_major = false, std::uint32_t heads = 1, const KvFtlConfig& of_ftl = config(),
                  DataMode mode = DataMode::timing)
      : shape{1, heads, 16, 0, component_major}, drive(kGeometry, of_ftl, mode, Bytes::gib(8), {}, &media) {
    REQUIRE(drive.ftl.create_sequence(kStay, shape) == KvStatus::ok);
    REQUIRE(drive.ftl.create_sequence(kGo, shape) == KvStatus::ok);
  }
  static KvFtlConfig config() {
    KvFtlConfig c;
    c.layout.embedding_group = 8;  // a window is 32 tokens, two token groups, in two pages
    return c;
  }
  AppendResult append(SequenceId id, std::uint32_t groups) {
    const std::uint32_t at = drive.ftl.tokens({id, LayerId{0}, KvHead{0}});
    return drive.ftl.append(id, LayerId{0}, TokenIndex{at}, groups * 16, {KvHead{0}, shape.kv_heads});
  }
  void run(const AppendResult& result) {
    for (const FlushJob& job : result.jobs)
      for (const PageOp& op : drive.finish(job)) drive.erase(op);
    for (const PageOp& op : result.erases) drive.erase(op);
  }
  PhysicalPageAddress page(PageKind kind, std::uint32_t group, std::uint32_t window = 0) {
    PhysicalPageAddress found = PhysicalPageAddress::invalid();
    drive.ftl.visit_pages([&](const KvPageId& id, PhysicalPageAddress ppa) {
      if (id == KvPageId{kKey, kind, group, window}) found = ppa;
    });
    return found;
  }
  std::vector<KvLoss> losses(std::uint32_t groups, std::size_t* reads = nullptr, SequenceId id = kStay) {
    std::vector<std::uint32_t> all(groups);
    for (std::uint32_t i = 0; i < groups; ++i) all[i] = i;
    ReadPlan plan;
    drive.ftl.plan_token_groups({id, LayerId{0}, KvHead{0}}, KvRows::both, all, {}, plan);
    if (reads != nullptr) *reads = plan.size();
    return drive.ftl.take_losses();
  }

  NamedLosses media;
  KvShape shape;
  KvDrive drive;
};

}  // namespace

TEST_CASE("a page that collection could not correct stays lost where it went, in DRAM and in flash") {
  Losing d;
  for (int i = 0; i < 30; ++i)
    for (const SequenceId id : {kStay, kGo}) d.run(d.append(id, 1));
  const PhysicalPageAddress before = d.page(PageKind::token_v, 3);
  d.media.pages = {before.value};
  const KvLoss expected{{kKey, PageKind::token_v, 3, 0}, 1, 48, 16};
  CHECK(d.losses(30) == std::vector{expected});
  for (const PageOp& op : d.drive.ftl.free_sequence(kGo).erases) d.drive.erase(op);
  std::uint32_t groups = 30;
  for (int i = 0; d.page(PageKind::token_v, 3) == before; ++i) {
    REQUIRE(i < 60);
    const AppendResult result = d.append(kStay, 1);
    groups += result.status == KvStatus::ok ? 1 : 0;
    if (d.page(PageKind::token_v, 3) != before) {
      d.media.pages.clear();  // it can be read at its new place, but is wrong
      CHECK(d.losses(30) == std::vector{expected});
    }
    d.run(result);
  }
  CHECK(d.losses(30) == std::vector{expected});
  // What is written later to the same pages is right.
  for (const PageOp& op : d.drive.ftl.free_sequence(kStay).erases) d.drive.erase(op);
  REQUIRE(d.drive.ftl.create_sequence(kStay, d.shape) == KvStatus::ok);
  for (std::uint32_t done = 0; done < 50;) {
    const AppendResult result = d.append(kStay, 1);
    done += result.status == KvStatus::ok ? 1 : 0;
    d.run(result);
  }
  CHECK(d.losses(50).empty());
}

TEST_CASE("an embedding page that was transposed from a lost page of K is lost") {
  Losing d(true);
  REQUIRE(d.drive.ftl.layout(kStay).window_tokens == 32);
  d.run(d.append(kStay, 1));
  d.media.pages = {d.page(PageKind::token_k, 0).value};
  const AppendResult full = d.append(kStay, 1);
  REQUIRE(full.jobs.size() == 2);
  const std::vector<std::uint32_t> both{0, 1};
  const auto embedding_losses = [&] {
    ReadPlan plan;
    d.drive.ftl.plan_embedding_groups(kKey, both, {}, plan);
    return d.drive.ftl.take_losses();
  };
  d.run(full);
  d.media.pages.clear();
  const std::vector<KvLoss> expected{{{kKey, PageKind::embedding, 0, 0}, 1, 0, 32},
                                     {{kKey, PageKind::embedding, 1, 0}, 1, 0, 32}};
  CHECK(embedding_losses() == expected);
  CHECK(d.losses(2).empty());
  d.run(d.append(kStay, 2));  // another window, of pages that can be read
  CHECK(embedding_losses() == expected);
}

TEST_CASE("blocks that are read often are reclaimed before their pages are lost") {
  for (const bool reclaims : {false, true}) {
    CAPTURE(reclaims);
    KvFtlConfig config = Losing::config();
    config.read_reclaim = reclaims ? 40 : 0;
    Losing d(false, 1, config);
    d.media.lost_after = 80;
    d.run(d.append(kStay, 16));
    std::size_t lost = 0;
    for (int step = 0; step < 60; ++step) {
      lost += d.losses(16).size();  // each block of 8 pages is read 8 times, an open one less often
      d.run(d.drive.ftl.append(kGo, LayerId{0}, TokenIndex{static_cast<std::uint32_t>(step)}, 1, {KvHead{0}, 1}));
    }
    CHECK((lost == 0) == reclaims);
    CHECK((d.drive.ftl.stats().reclaimed_blocks > 20) == reclaims);
    CHECK(d.drive.ftl.stats().erases == d.drive.ftl.stats().reclaimed_blocks);
    CHECK(d.drive.ftl.draining_blocks() == 0);
  }
}

TEST_CASE("dropped tokens are not read, are reported to whoever wants them, and end with their sequence") {
  Losing d;
  d.run(d.append(kStay, 8));
  std::size_t reads = 0;
  CHECK(d.losses(8, &reads).empty());
  CHECK(reads == 16);
  d.media.pages = {d.page(PageKind::token_k, 2).value, d.page(PageKind::token_v, 3).value,
                   d.page(PageKind::token_v, 6).value};
  const std::vector<KvLoss> lost = d.losses(8);
  REQUIRE(lost.size() == 3);
  for (const KvLoss& loss : lost) d.drive.ftl.drop(loss);
  for (const KvLoss& loss : lost) d.drive.ftl.drop(loss);  // twice is once
  CHECK(d.drive.ftl.stats().rows_dropped == 48);
  const std::vector<TokenSpan> spans(d.drive.ftl.dropped(kKey).begin(), d.drive.ftl.dropped(kKey).end());
  CHECK(spans == std::vector<TokenSpan>{{32, 64}, {96, 112}});
  // Both pages of three groups are left out, and reported.
  CHECK(d.losses(8, &reads).size() == 6);
  CHECK(reads == 10);
  // A copy of the sequence lacks them, too.
  const SequenceId child{7};
  REQUIRE(d.drive.ftl.fork_sequence(kStay, child) == KvStatus::ok);
  CHECK(d.losses(8, &reads, child).size() == 6);
  CHECK(reads == 10);
  for (const PageOp& op : d.drive.ftl.free_sequence(kStay).erases) d.drive.erase(op);
  CHECK(d.drive.ftl.dropped(kKey).empty());
  CHECK_FALSE(d.drive.ftl.dropped({child, LayerId{0}, KvHead{0}}).empty());
}

TEST_CASE("pages that are lost are written again, those and no others, with the rows that they held") {
  for (const TailPolicy tail : {TailPolicy::token_index, TailPolicy::dram, TailPolicy::partial_program})
    for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
      CAPTURE(static_cast<int>(tail), seed);
      std::mt19937_64 rng(seed);
      KvFtlConfig config = Losing::config();
      config.tail = tail;
      Losing d(true, 2, config, DataMode::carried);
      const std::uint32_t tokens = 32 + 16 * static_cast<std::uint32_t>(rng() % 5), heads = 2;
      const std::vector<Half> k = random_halves(rng, std::size_t{heads} * tokens * 16);
      const std::vector<Half> v = random_halves(rng, k.size());
      d.run(d.drive.ftl.append(kStay, LayerId{0}, TokenIndex{0}, tokens, {KvHead{0}, heads}, k, v));
      // Some pages of both heads are lost, of K, V and components.
      std::map<KvPageId, PhysicalPageAddress> before;
      d.drive.ftl.visit_pages([&](const KvPageId& id, PhysicalPageAddress ppa) { before[id] = ppa; });
      std::set<KvPageId> lost;
      for (const auto& [id, ppa] : before)
        if (rng() % 3 == 0) {
          lost.insert(id);
          d.media.pages.insert(ppa.value);
        }
      const std::uint64_t reads = d.drive.ftl.stats().uncorrectable_reads;
      const AppendResult result =
          d.drive.ftl.rewrite(kStay, LayerId{0}, TokenIndex{0}, tokens, {KvHead{0}, heads}, k, v);
      REQUIRE(result.status == KvStatus::ok);
      CHECK(d.drive.ftl.stats().pages_rewritten == lost.size());
      CHECK(d.drive.ftl.stats().uncorrectable_reads == reads);
      CHECK(result.jobs.empty() == lost.empty());
      // Until they are in flash they are read from DRAM; the old pages are nobody's from then on.
      CHECK(d.losses(tokens / 16).empty());
      CHECK(d.drive.ftl.superseded_pages() == lost.size());
      const std::uint64_t valid = d.drive.blocks.valid_pages(Namespace::kv);
      d.run(result);
      CHECK(d.drive.ftl.superseded_pages() == 0);
      CHECK(d.drive.blocks.valid_pages(Namespace::kv) == valid - lost.size());
      d.drive.ftl.visit_pages([&](const KvPageId& id, PhysicalPageAddress ppa) {
        CAPTURE(to_string(id));
        CHECK((ppa != before.at(id)) == lost.contains(id));
      });
      CHECK(d.losses(tokens / 16).empty());
      CHECK(d.drive.ftl.verify() == 0);
      for (std::uint32_t head = 0; head < heads; ++head)
        for (std::uint32_t token = 0; token < tokens; ++token) {
          const std::size_t at = (std::size_t{head} * tokens + token) * 16;
          const HeadKey key{kStay, LayerId{0}, KvHead{head}};
          CHECK(std::equal(k.begin() + std::ptrdiff_t(at), k.begin() + std::ptrdiff_t(at) + 16,
                           d.drive.ftl.token_row(key, KvKind::key, TokenIndex{token})));
          CHECK(std::equal(v.begin() + std::ptrdiff_t(at), v.begin() + std::ptrdiff_t(at) + 16,
                           d.drive.ftl.token_row(key, KvKind::value, TokenIndex{token})));
          if (token >= d.drive.ftl.transposed_tokens(key)) continue;
          for (std::uint32_t i = 0; i < 16; ++i)
            CHECK(d.drive.ftl.embedding_page(key, i / 8, token / 32)[i % 8 * 32 + token % 32] == k[at + i]);
        }
    }
}

TEST_CASE("only pages whose tokens are all given are written again, and rows that are not there are refused") {
  Losing d(true, 2);
  d.run(d.append(kStay, 4));
  d.media.pages = {d.page(PageKind::token_k, 1).value, d.page(PageKind::embedding, 1, 0).value,
                   d.page(PageKind::embedding, 0, 1).value};
  const auto rewrite = [&](std::uint32_t first, std::uint32_t count, HeadRange heads = {KvHead{0}, 2}) {
    const AppendResult result = d.drive.ftl.rewrite(kStay, LayerId{0}, TokenIndex{first}, count, heads);
    d.run(result);
    return result.status;
  };
  CHECK(rewrite(17, 47) == KvStatus::ok);  // not the whole group, nor the first window; the second window
  CHECK(d.drive.ftl.stats().pages_rewritten == 1);
  CHECK(rewrite(0, 32, {KvHead{1}, 1}) == KvStatus::ok);  // the other head has lost nothing
  CHECK(d.drive.ftl.stats().pages_rewritten == 1);
  CHECK(rewrite(16, 16) == KvStatus::ok);
  CHECK(d.drive.ftl.stats().pages_rewritten == 2);
  CHECK(rewrite(0, 32) == KvStatus::ok);
  CHECK(d.drive.ftl.stats().pages_rewritten == 3);
  CHECK(rewrite(0, 64) == KvStatus::ok);
  CHECK(d.drive.ftl.stats().pages_rewritten == 3);
  CHECK(rewrite(0, 65) == KvStatus::bad_token);
  CHECK(rewrite(0, 1, {KvHead{1}, 2}) == KvStatus::bad_head);
  CHECK(d.drive.ftl.rewrite(SequenceId{9}, LayerId{0}, TokenIndex{0}, 1, {KvHead{0}, 1}).status ==
        KvStatus::bad_sequence);
  CHECK(d.drive.ftl.rewrite(kStay, LayerId{1}, TokenIndex{0}, 1, {KvHead{0}, 1}).status == KvStatus::bad_layer);
}

TEST_CASE("a page that two sequences share is written again for both, when no other reads it") {
  Losing d;
  d.run(d.append(kStay, 4));
  const SequenceId child{7};
  REQUIRE(d.drive.ftl.fork_sequence(kStay, child) == KvStatus::ok);
  d.media.pages = {d.page(PageKind::token_v, 2).value};
  CHECK(d.losses(4, nullptr, child).size() == 1);
  d.drive.ftl.pin(kStay);
  const auto rewrite = [&] { return d.drive.ftl.rewrite(child, LayerId{0}, TokenIndex{32}, 16, {KvHead{0}, 1}); };
  CHECK(rewrite().status == KvStatus::busy);
  CHECK(d.drive.ftl.unpin(kStay).empty());
  const AppendResult result = rewrite();
  REQUIRE(result.status == KvStatus::ok);
  // A sequence can be freed while its pages are being written. They become invalid when they are in flash.
  for (const PageOp& op : d.drive.ftl.free_sequence(child).erases) d.drive.erase(op);
  d.run(result);
  CHECK(d.losses(4).empty());
  CHECK(d.drive.ftl.stats().pages_rewritten == 1);
  CHECK(d.drive.ftl.superseded_pages() == 0);
  CHECK(d.drive.blocks.valid_pages(Namespace::kv) == 8);
}

}  // namespace test_kv_losses
