#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "ftl/durability/head_oracle.h"
#include "kv_fixture.h"

namespace test_kv_ftl_random {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;
using durability::HeadOracle;

namespace {

struct SequenceOracle {
  KvShape shape;
  std::map<std::pair<std::uint32_t, std::uint32_t>, HeadOracle> heads;  ///< by (layer, head)
};

struct Setup {
  FlashGeometry geometry;
  KvFtlConfig config;
  Bytes dram;
  std::uint32_t units = 1;  ///< units of a page, in which the block manager counts
};

class Run {
 public:
  Run(const Setup& setup, std::uint64_t seed)
      : drive_(setup.geometry, setup.config, DataMode::carried, setup.dram, {}, nullptr, setup.units),
        setup_(setup),
        rng_(seed) {}

  void step() {
    switch (rng_() % 16) {
      case 0:
        create();
        break;
      case 1:
        if (!live_.empty() && rng_() % 3 == 0) release();
        break;
      case 2:
      case 3:
      case 4:
        flush_one();
        break;
      case 5:
        erase_one();
        break;
      case 6:
        check_a_row();
        break;
      default:
        if (!live_.empty()) append();
    }
  }

  void drain() {
    while (!jobs_.empty()) flush_one();
    while (!erases_.empty()) erase_one();
  }

  /// Everything that must hold at any time.
  void check_all() {
    std::set<std::uint64_t> used;
    std::map<std::uint32_t, std::uint32_t> valid;
    std::map<KvPageId, PhysicalPageAddress> pages;
    drive_.ftl.visit_pages([&](const KvPageId& page, PhysicalPageAddress ppa) {
      REQUIRE(setup_.geometry.contains(ppa));
      REQUIRE(used.insert(ppa.value).second);
      REQUIRE(pages.emplace(page, ppa).second);
      ++valid[setup_.geometry.block_of(ppa).value];
    });
    for (std::uint32_t b = 0; b < setup_.geometry.blocks(); ++b) {
      REQUIRE(drive_.blocks.valid_pages(BlockId{b}) == setup_.units * (valid.contains(b) ? valid[b] : 0));
    }
    Bytes group_buffer;
    Bytes component_tail;
    Bytes mean;
    std::uint64_t live_pages = 0;
    for (const auto& [id, s] : live_) {
      const KvLayout& l = drive_.ftl.layout(id);
      for (const auto& [where, h] : s.heads) {
        const HeadKey key{id, LayerId{where.first}, KvHead{where.second}};
        const std::uint64_t tokens = h.keys.size() / s.shape.head_dim;
        live_pages += l.pages(tokens).total();
        group_buffer += l.group_buffer(tokens);
        if (setup_.config.tail == TailPolicy::dram) component_tail += l.component_tail(tokens);
        if (tokens > 0) mean += Bytes{4} * s.shape.head_dim;
        check_head(key, l, h, tokens, pages);
      }
    }
    if (closing_ == 0) {
      REQUIRE(pages.size() == live_pages);
      REQUIRE(drive_.dram.used(DramUse::group_buffer) == group_buffer);
      REQUIRE(drive_.dram.used(DramUse::component_tail) == component_tail);
      REQUIRE(drive_.dram.used(DramUse::value_mean) == mean);
      REQUIRE(drive_.dram.used(DramUse::map) == Bytes{8} * live_pages);
    }
    std::uint64_t pending = 0;
    for (const FlushJob& job : jobs_) pending += job.programs.size();
    REQUIRE(drive_.dram.used(DramUse::flush_pending) == setup_.geometry.page_size * pending);
    REQUIRE(drive_.store.integrity_errors() == 0);
  }

  /// After the last sequence is gone nothing is held, and every block is free, or open and without valid pages.
  void free_everything() {
    while (!live_.empty()) release();
    drain();
    REQUIRE(drive_.dram.used() == Bytes{0});
    std::uint32_t open = 0;
    for (std::uint32_t b = 0; b < setup_.geometry.blocks(); ++b) {
      REQUIRE(drive_.blocks.valid_pages(BlockId{b}) == 0);
      const BlockState state = drive_.blocks.state(BlockId{b});
      REQUIRE((state == BlockState::free || state == BlockState::open));
      open += state == BlockState::open ? 1 : 0;
    }
    REQUIRE(open <= 2 * setup_.geometry.planes());
    REQUIRE(drive_.ftl.verify() == 0);
  }

  std::map<KvStatus, int> seen;
  const KvFtlStats& stats() const { return drive_.ftl.stats(); }

 private:
  void create() {
    const SequenceId id{static_cast<std::uint32_t>(rng_() % 5)};
    const std::uint32_t most = static_cast<std::uint32_t>(setup_.geometry.page_size.value / 2);
    std::uint32_t d = 16u << (rng_() % 4);
    d = std::min(d, most);
    const KvShape shape{1 + static_cast<std::uint32_t>(rng_() % 3), 1 + static_cast<std::uint32_t>(rng_() % 4), d,
                        static_cast<std::uint32_t>(rng_() % 700)};
    const KvStatus status = drive_.ftl.create_sequence(id, shape);
    if (live_.contains(id)) {
      REQUIRE(status == KvStatus::bad_sequence);
    } else if (status == KvStatus::ok) {
      live_[id].shape = shape;
    } else {
      REQUIRE(status == KvStatus::busy);
      REQUIRE(closing_ > 0);
    }
  }

  void release() {
    auto it = live_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(rng_() % live_.size()));
    const FreeResult result = drive_.ftl.free_sequence(it->first);
    REQUIRE(result.status == KvStatus::ok);
    const SequenceId id = it->first;
    live_.erase(it);
    if (std::ranges::any_of(jobs_, [&](const FlushJob& job) { return owners_.at(job.id.value).contains(id); })) {
      REQUIRE(result.erases.empty());
      ++closing_;
    }
    add_erases(result.erases);
  }

  void flush_one() {
    if (jobs_.empty()) return;
    const auto it = jobs_.begin() + static_cast<std::ptrdiff_t>(rng_() % jobs_.size());
    const FlushJob job = *it;
    jobs_.erase(it);
    REQUIRE_NOTHROW(add_erases(drive_.finish(job)));
    const std::set<SequenceId> ids = owners_.at(job.id.value);
    owners_.erase(job.id.value);
    for (const SequenceId id : ids) {
      const bool last = std::ranges::none_of(owners_, [&](const auto& o) { return o.second.contains(id); });
      if (!live_.contains(id) && last) --closing_;
    }
  }

  /// Takes over what an append set off.
  void add_jobs(const AppendResult& result) {
    for (const FlushJob& job : result.jobs) {
      std::set<std::uint64_t> pages;
      for (const PageOp& op : job.programs) pages.insert(op.ppa.value);
      drive_.ftl.visit_pages([&](const KvPageId& page, PhysicalPageAddress ppa) {
        if (pages.contains(ppa.value)) owners_[job.id.value].insert(page.key.sequence);
      });
      jobs_.push_back(job);
    }
    add_erases(result.erases);
  }

  void add_erases(const std::vector<PageOp>& erases) { erases_.insert(erases_.end(), erases.begin(), erases.end()); }

  void erase_one() {
    if (erases_.empty()) return;
    const auto it = erases_.begin() + static_cast<std::ptrdiff_t>(rng_() % erases_.size());
    const PageOp op = *it;
    erases_.erase(it);
    REQUIRE_NOTHROW(drive_.erase(op));
  }

  void append() {
    auto it = live_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(rng_() % live_.size()));
    const SequenceId id = it->first;
    SequenceOracle& s = it->second;
    const KvLayout& l = drive_.ftl.layout(id);
    const auto layer = static_cast<std::uint32_t>(rng_() % s.shape.layers);
    const auto first_head = static_cast<std::uint32_t>(rng_() % s.shape.kv_heads);
    const std::size_t at = s.heads[{layer, first_head}].keys.size();
    std::uint32_t heads = 1;
    while (first_head + heads < s.shape.kv_heads && s.heads[{layer, first_head + heads}].keys.size() == at) ++heads;
    const std::uint32_t most =
        std::array{1u, 3u, l.group_tokens + 1, l.window_tokens / 2 + 1, 2 * l.window_tokens + 3}[rng_() % 5];
    const auto count = 1 + static_cast<std::uint32_t>(rng_() % most);
    const std::uint32_t d = s.shape.head_dim;
    const std::vector<Half> keys = random_halves(rng_, std::size_t{heads} * count * d);
    const std::vector<Half> values = random_halves(rng_, std::size_t{heads} * count * d);

    const auto submit = [&] {
      return drive_.ftl.append(id, LayerId{layer}, TokenIndex{static_cast<std::uint32_t>(at / d)}, count,
                               {KvHead{first_head}, heads}, keys, values);
    };
    AppendResult result = submit_unless_it_fails(submit);
    ++seen[result.status];
    for (std::uint32_t tries = 0; result.status == KvStatus::busy; ++tries) {
      // Waiting for everything that is under way must decide it, or make room for further collection.
      REQUIRE(tries < 2 + setup_.geometry.blocks());
      const std::uint64_t collected = stats().gc_blocks;
      drain();
      result = submit_unless_it_fails(submit);
      if (result.status == KvStatus::busy) REQUIRE(stats().gc_blocks > collected);
    }
    if (result.status != KvStatus::ok) {
      REQUIRE((result.status == KvStatus::out_of_dram || result.status == KvStatus::out_of_space));
      const KvStatus why = result.status;
      if (rng_() % 4 == 0) {
        drain();
        REQUIRE(submit_unless_it_fails(submit).status == why);
      }
      if (rng_() % 4 == 0) release();
      return;
    }
    for (std::uint32_t i = 0; i < heads; ++i) {
      const std::size_t part = std::size_t{count} * d, from = i * part;
      s.heads[{layer, first_head + i}].append(std::span(keys).subspan(from, part),
                                              std::span(values).subspan(from, part), d);
    }
  }

  template <class Submit>
  AppendResult submit_unless_it_fails(const Submit& submit) {
    const DramBudget dram = drive_.dram;
    const KvFtlStats stats = drive_.ftl.stats();
    const std::uint64_t free_pages = drive_.blocks.available_pages(Namespace::kv);
    const std::size_t pending = drive_.ftl.pending_flushes();
    AppendResult result = submit();
    add_jobs(result);
    if (result.status == KvStatus::ok || !result.jobs.empty() || !result.erases.empty()) return result;
    for (std::size_t use = 0; use < kDramUses; ++use) {
      REQUIRE(drive_.dram.used(static_cast<DramUse>(use)) == dram.used(static_cast<DramUse>(use)));
      REQUIRE(drive_.dram.peak(static_cast<DramUse>(use)) == dram.peak(static_cast<DramUse>(use)));
    }
    REQUIRE(std::memcmp(&stats, &drive_.ftl.stats(), sizeof stats) == 0);
    REQUIRE(drive_.blocks.available_pages(Namespace::kv) == free_pages);
    REQUIRE(drive_.ftl.pending_flushes() == pending);
    return result;
  }

  void check_a_row() {
    if (live_.empty()) return;
    const auto& [id, s] = *live_.begin();
    for (const auto& [where, h] : s.heads) {
      if (h.keys.empty()) continue;
      const auto token = static_cast<std::uint32_t>(rng_() % (h.keys.size() / s.shape.head_dim));
      const HeadKey key{id, LayerId{where.first}, KvHead{where.second}};
      const std::size_t row = std::size_t{token} * s.shape.head_dim;
      const std::size_t bytes = std::size_t{s.shape.head_dim} * 2;
      REQUIRE(std::memcmp(drive_.ftl.token_row(key, KvKind::key, TokenIndex{token}), &h.keys[row], bytes) == 0);
      REQUIRE(std::memcmp(drive_.ftl.token_row(key, KvKind::value, TokenIndex{token}), &h.values[row], bytes) == 0);
    }
  }

  void check_head(const HeadKey& key, const KvLayout& l, const HeadOracle& h, std::uint64_t tokens,
                  const std::map<KvPageId, PhysicalPageAddress>& pages) {
    const std::uint32_t d = l.head_dim;
    REQUIRE(drive_.ftl.tokens(key) == tokens);
    REQUIRE(drive_.ftl.flushed_tokens(key) == l.full_groups(tokens) * l.group_tokens);
    const std::uint32_t transposed = drive_.ftl.transposed_tokens(key);
    REQUIRE(transposed % l.window_tokens == 0);
    REQUIRE(transposed <= l.full_windows(tokens) * l.window_tokens);
    if (jobs_.empty() || setup_.config.tail == TailPolicy::dram) {
      REQUIRE(transposed == l.full_windows(tokens) * l.window_tokens);
    }
    for (std::uint32_t group = 0; std::uint64_t{group} * l.group_tokens < tokens; ++group) {
      const std::size_t from = std::size_t{group} * l.group_tokens * d;
      const std::size_t bytes = 2 * std::min<std::size_t>(std::size_t{l.group_tokens} * d, h.keys.size() - from);
      REQUIRE(std::memcmp(drive_.ftl.token_rows(key, KvKind::key, group), &h.keys[from], bytes) == 0);
      REQUIRE(std::memcmp(drive_.ftl.token_rows(key, KvKind::value, group), &h.values[from], bytes) == 0);
      for (const KvKind kind : {KvKind::key, KvKind::value}) {
        ReadPlan plan;
        drive_.ftl.plan_token_groups(key, kind == KvKind::key ? KvRows::keys : KvRows::values, std::span(&group, 1), {},
                                     plan);
        check_planned(plan.ops, pages, {key, kind == KvKind::key ? PageKind::token_k : PageKind::token_v, group, 0});
      }
    }
    const std::uint32_t windows = transposed / l.window_tokens;
    for (std::uint32_t ge = 0; ge < l.embedding_pages(); ++ge) {
      ReadPlan plan;
      drive_.ftl.plan_embedding_groups(key, std::span(&ge, 1), {}, plan);
      const std::vector<PageOp>& ops = plan.ops;
      std::size_t next = 0;
      for (std::uint32_t w = 0; w < windows; ++w) {
        const Half* page = drive_.ftl.embedding_page(key, ge, w);
        for (std::uint32_t i = 0; i < l.embedding_group; ++i) {
          for (std::uint32_t t = 0; t < l.window_tokens; ++t) {
            const std::size_t token = std::size_t{w} * l.window_tokens + t;
            if (page[i * l.window_tokens + t] != h.keys[token * d + ge * l.embedding_group + i]) {
              FAIL("embedding page differs from the appended keys");
            }
          }
        }
        const PhysicalPageAddress ppa = pages.at({key, PageKind::embedding, ge, w});
        if (drive_.flash.programmed(ppa)) {
          REQUIRE(next < ops.size());
          REQUIRE(ops[next++].ppa == ppa);
        }
      }
      REQUIRE(next == ops.size());
    }
    if (tokens > 0) {
      const auto mean = drive_.ftl.value_mean(key);
      REQUIRE(std::memcmp(mean.data(), h.mean.data(), d * sizeof(float)) == 0);
    }
  }

  /// A page is read from flash exactly if its program has run.
  void check_planned(const std::vector<PageOp>& ops, const std::map<KvPageId, PhysicalPageAddress>& pages,
                     const KvPageId& page) {
    const auto it = pages.find(page);
    const bool in_flash = it != pages.end() && drive_.flash.programmed(it->second);
    REQUIRE(ops.size() == (in_flash ? 1 : 0));
    if (!in_flash) return;
    REQUIRE(ops[0].ppa == it->second);
    REQUIRE(ops[0].op_class == OpClass::attend);
  }

  KvDrive drive_;
  Setup setup_;
  std::mt19937_64 rng_;
  std::map<SequenceId, SequenceOracle> live_;
  std::deque<FlushJob> jobs_;
  std::map<std::uint64_t, std::set<SequenceId>> owners_;  ///< owners of the jobs
  std::deque<PageOp> erases_;
  int closing_ = 0;
};

}  // namespace

TEST_CASE("KV FTL against plain arrays: random create, append, flush, free, over shapes and page sizes") {
  std::map<KvStatus, int> seen;
  std::uint64_t read_back = 0;
  std::uint64_t misplaced = 0;
  std::uint64_t collected = 0;
  for (std::uint64_t seed = 1; seed <= 48; ++seed) {
    std::mt19937_64 rng(seed);
    Setup setup;
    const Bytes page{std::uint64_t{512} << (rng() % 6)};
    const std::uint32_t channels = 1 + static_cast<std::uint32_t>(rng() % 8);
    setup.geometry = {channels,
                      1 + static_cast<std::uint32_t>(rng() % 3),
                      1 + static_cast<std::uint32_t>(rng() % 2),
                      4 + static_cast<std::uint32_t>(rng() % 60),
                      1 + static_cast<std::uint32_t>(rng() % 16),
                      page};
    setup.config.tail = rng() % 2 == 0 ? TailPolicy::token_index : TailPolicy::dram;
    setup.config.layout.embedding_group = std::array{0u, 1u, 2u, 4u, 16u}[rng() % 5];
    setup.dram = rng() % 3 == 0 ? page * (8 + rng() % 200) : Bytes::gib(4);
    setup.units = 1u << seed % 3;
    CAPTURE(seed, page.value, setup.units, channels, setup.config.layout.embedding_group, setup.dram.value);
    Run run(setup, seed * 1000);
    for (int step = 0; step < 250; ++step) {
      run.step();
      if (step % 50 == 0) run.check_all();
    }
    run.check_all();
    run.drain();
    run.check_all();
    run.free_everything();
    for (const auto& [status, count] : run.seen) seen[status] += count;
    read_back += run.stats().read_back_pages;
    misplaced += run.stats().misplaced_pages;
    collected += run.stats().gc_blocks;
  }
  // The interleavings must have reached the corners.
  CHECK(seen[KvStatus::busy] > 10);
  CHECK(seen[KvStatus::out_of_dram] > 10);
  CHECK(seen[KvStatus::out_of_space] > 10);
  CHECK(read_back > 100);
  CHECK(misplaced > 10);
  CHECK(collected > 10);
}

}  // namespace test_kv_ftl_random
