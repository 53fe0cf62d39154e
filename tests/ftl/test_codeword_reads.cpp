// Reads of single codewords against an oracle that marks every byte that is wanted.
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "block_drive.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/policies/instinfer.h"
#include "ftl/policies/page_l2p.h"
#include "ftl/policies/paired.h"

namespace test_codeword_reads {

using namespace csdsim;
using namespace csdsim::ftl;
using csdsim::ftl::test::BlockDrive;

namespace {

/// Codewords by page that hold wanted bytes, as bytes.
class Wanted {
 public:
  Wanted(std::uint64_t page, std::uint64_t codeword) : page_(page), codeword_(codeword) {}
  void add(std::uint64_t first, std::uint64_t length) {
    for (std::uint64_t byte = first; byte < first + length; ++byte)
      pages_[byte / page_].insert(byte % page_ / codeword_);
  }
  /// Bytes that are read of each page, in the order of pages.
  std::vector<std::uint64_t> bytes() const {
    std::vector<std::uint64_t> list;
    for (const auto& [page, codewords] : pages_) list.push_back(codewords.size() * codeword_);
    return list;
  }

 private:
  std::uint64_t page_, codeword_;
  std::map<std::uint64_t, std::set<std::uint64_t>> pages_;
};

std::vector<std::uint64_t> channel_bytes(const std::vector<PageOp>& ops) {
  std::vector<std::uint64_t> list;
  for (const PageOp& op : ops) list.push_back(op.channel_bytes);
  return list;
}

/// Channel bytes by page of the runs of these groups of components, and of the scales of few bits.
std::vector<std::uint64_t> bytes_of_components(const KvLayout& l, std::uint32_t windows,
                                               const std::vector<std::uint32_t>& components, std::uint64_t codeword) {
  std::vector<std::uint64_t> bytes;
  for (std::uint32_t w = 0; w < windows; ++w) {
    const KvWindow window = l.window(w);
    const std::uint64_t fetched = l.fetch_components(), run = (window.tokens * l.format.bits + 7) / 8;
    Wanted wanted(2048, codeword);
    for (const std::uint32_t group : components)
      for (std::uint64_t component = group * fetched; component < (group + 1) * fetched; ++component) {
        const std::uint64_t page = component / window.group, begin = page * window.group;
        wanted.add(page * 2048 + (component - begin) * run, run);
        if (!l.format.quantised()) continue;
        const std::uint64_t scale = component / l.format.group - begin / l.format.group;
        wanted.add(page * 2048 + window.group * run + scale * window.tokens * 2, window.tokens * 2);
      }
    std::ranges::copy(wanted.bytes(), std::back_inserter(bytes));
  }
  return bytes;
}

}  // namespace

TEST_CASE("a block read moves the codewords that hold its bytes, a partial write those that it keeps") {
  const std::uint64_t seed = 20'261;
  CAPTURE(seed);
  std::mt19937_64 rng(seed);
  for (const std::uint64_t codeword : {512u, 1024u, 2048u}) {
    BlockDrive drive({2, 1, 1, 32, 16, Bytes{2048}}, {32, 0}, DataMode::timing, {.codeword = Bytes{codeword}});
    drive.ftl.precondition(Bytes{2048 * 512}, std::nullopt);
    for (int i = 0; i < 400; ++i) {
      const std::uint64_t first = rng() % (2048 * 500) / 128 * 128, length = (rng() % 40 + 1) * 128;
      Wanted wanted(2048, codeword);
      wanted.add(first, length);
      const IoPlan read = drive.ftl.read(Bytes{first}, Bytes{length});
      REQUIRE(read.phases.size() == 1);
      REQUIRE(channel_bytes(read.phases[0]) == wanted.bytes());

      std::vector<std::uint64_t> kept;
      for (std::uint64_t page = first / 2048; page * 2048 < first + length; ++page) {
        std::uint64_t whole = 0;  // codewords that are written wholly
        for (std::uint64_t at = page * 2048; at < (page + 1) * 2048; at += codeword)
          whole += at >= first && at + codeword <= first + length ? 1 : 0;
        const bool covered = page * 2048 >= first && (page + 1) * 2048 <= first + length;
        if (!covered) kept.push_back(2048 - whole * codeword);
      }
      const IoPlan write = drive.ftl.write(Bytes{first}, Bytes{length});
      std::vector<std::uint64_t> merged;
      for (const Phase& phase : write.phases)
        for (const PageOp& op : phase)
          if (op.op_class == OpClass::host && op.kind == PageOpKind::read)
            merged.push_back(op.channel_bytes);
          else if (op.op_class == OpClass::host)
            REQUIRE(op.channel_bytes == 2048);
      REQUIRE(merged == kept);
    }
  }
}

TEST_CASE("token groups and components of one page are read together, with their codewords only") {
  const FlashGeometry g{2, 1, 1, 64, 16, Bytes{2048}};
  struct Case {
    int policy;  // 0 InstInfer, 1 paired, 2 page-l2p
    std::uint32_t codeword, head_dim, fetch_tokens, fetch_components;
    RowQuantisation format = {};
  };
  // A row is 32 B, 64 a page; a component of 256 tokens (m = 4) 512 B.
  const std::vector<Case> cases{{0, 512, 16, 16, 1},
                                {0, 1024, 16, 32, 2},
                                {0, 2048, 16, 64, 4},
                                {0, 512, 512, 1, 1},
                                {1, 512, 16, 16, 1},
                                {1, 2048, 16, 32, 4},
                                {2, 512, 16, 2, 1},
                                // Rows of 12 B, 170 a page; windows of 510 tokens with runs of 255 B.
                                {0, 512, 16, 2, 2, {4, 8}},
                                {0, 1024, 16, 85, 4, {4, 8}},
                                {1, 512, 16, 1, 2, {4, 8}},
                                // Rows of 32 B; windows of 256 tokens, in each of whose pages are two scales of each.
                                {0, 512, 16, 16, 2, {8, 2}}};
  for (std::size_t number = 0; number < cases.size(); ++number) {
    const Case& c = cases[number];
    const std::uint64_t seed = 30 + number;
    CAPTURE(number, seed);
    std::mt19937_64 rng(seed);
    BlockManager blocks(g, {0, g.blocks_per_plane});
    BackingStore store(g, DataMode::timing);
    DramBudget dram(Bytes::mib(64));
    std::unique_ptr<KvMappingPolicy> policy;
    if (c.policy == 0) policy = std::make_unique<InstinferPolicy>(g);
    if (c.policy == 1) policy = std::make_unique<PairedPolicy>(g);
    if (c.policy == 2) policy = std::make_unique<PageL2pPolicy>(g);
    KvFtl ftl({.layout = {4, false}, .codeword = Bytes{c.codeword}}, blocks, store, dram, std::move(policy));
    const SequenceId id{0};
    const HeadRange heads{KvHead{0}, c.policy == 2 ? 24u : 1u};
    REQUIRE(ftl.create_sequence(id, {1, heads.count, c.head_dim, 512, c.policy != 2, c.format}) == KvStatus::ok);
    const std::uint32_t tokens = 1024;
    AppendResult filled = ftl.append(id, LayerId{0}, TokenIndex{0}, tokens, heads);
    REQUIRE(filled.status == KvStatus::ok);
    for (const FlushJob& job : filled.jobs) ftl.flush_done(job.id);
    const HeadKey key{id, LayerId{0}, KvHead{heads.count - 1}};
    const KvLayout& l = ftl.layout(id);
    REQUIRE(l.fetch_tokens() == c.fetch_tokens);
    const std::uint64_t row = c.format.row(c.head_dim, 2).value, f = l.fetch_tokens(), n = l.group_tokens;
    const std::uint64_t part = n * row;  // part of a page for K or V of a head
    for (int i = 0; i < 100; ++i) {
      std::vector<std::uint32_t> groups;
      for (std::uint32_t group = 0; group < ftl.flushed_tokens(key) / f; ++group)
        if (rng() % 3 == 0) groups.push_back(group);
      for (const KvRows which : {KvRows::keys, KvRows::values, KvRows::both}) {
        Wanted keys(2048, c.codeword), values(2048, c.codeword), pair(2048, c.codeword);
        for (const std::uint32_t group : groups) {
          const std::uint64_t token = group * f, page = token / n * 2048;
          const std::uint64_t head = key.head.value % l.page_heads, at = page + head * part + token % n * row;
          if (which != KvRows::values) (l.paired ? pair : keys).add(at, f * row);
          if (which != KvRows::keys) (l.paired ? pair : values).add(at + (l.paired ? l.page_heads * part : 0), f * row);
        }
        std::vector<std::uint64_t> expected = keys.bytes();
        std::ranges::copy(values.bytes(), std::back_inserter(expected));
        std::ranges::copy(pair.bytes(), std::back_inserter(expected));
        ReadPlan plan;
        ftl.plan_token_groups(key, which, groups, {}, plan);
        REQUIRE(channel_bytes(plan.ops) == expected);
      }
      if (!l.component_major) continue;
      REQUIRE(l.fetch_components() == c.fetch_components);
      std::vector<std::uint32_t> components;
      for (std::uint32_t group = 0; group < c.head_dim / l.fetch_components(); ++group)
        if (rng() % 3 == 0) components.push_back(group);
      ReadPlan plan;
      ftl.plan_embedding_groups(key, components, {}, plan);
      REQUIRE(channel_bytes(plan.ops) == bytes_of_components(l, ftl.transposed_windows(key), components, c.codeword));
      // What passes the filter: runs and scales, without the rest of their codewords.
      const std::vector<std::uint64_t> passed(plan.wanted.begin(), plan.wanted.end());
      REQUIRE(passed == bytes_of_components(l, ftl.transposed_windows(key), components, 1));
    }
  }
}

}  // namespace test_codeword_reads
