// Eviction policies against naive models, written from the papers' rules over lists of ids.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <list>
#include <map>
#include <set>

#include "base/rng.h"
#include "serving_support.h"

namespace test_eviction {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

using Id = std::uint64_t;
using Ids = std::list<Id>;  // the newest first

bool has(const Ids& list, Id id) { return std::find(list.begin(), list.end(), id) != list.end(); }
void erase(Ids& list, Id id) { list.remove(id); }

struct Naive {
  explicit Naive(std::size_t capacity) : c(capacity) {}
  virtual ~Naive() = default;
  /// True for a hit.
  virtual bool request(Id id) = 0;
  std::size_t c;
};

struct NaiveLru final : Naive {
  using Naive::Naive;
  Ids all;
  bool request(Id id) override {
    const bool hit = has(all, id);
    erase(all, id);
    if (all.size() == c) all.pop_back();
    all.push_front(id);
    return hit;
  }
};

struct NaiveFifo final : Naive {
  using Naive::Naive;
  Ids all;
  bool request(Id id) override {
    if (has(all, id)) return true;
    if (all.size() == c) all.pop_back();
    all.push_front(id);
    return false;
  }
};

struct NaiveLfu final : Naive {
  using Naive::Naive;
  struct Use {
    std::uint64_t count = 0, last = 0;
  };
  std::map<Id, Use> all;
  std::uint64_t now = 0;
  bool request(Id id) override {
    const bool hit = all.contains(id);
    if (!hit && all.size() == c) {
      all.erase(std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.count, a.second.last) < std::pair(b.second.count, b.second.last);
      }));
    }
    all[id] = {all[id].count + 1, ++now};
    return hit;
  }
};

/// Megiddo and Modha, FAST 2003, figure 4, case by case.
struct NaiveArc final : Naive {
  using Naive::Naive;
  Ids t1, t2, b1, b2;
  double p = 0;
  void replace(Id x) {
    const auto size = static_cast<double>(t1.size());
    if (!t1.empty() && ((has(b2, x) && size == p) || size > p)) {
      b1.push_front(t1.back());
      t1.pop_back();
    } else {
      b2.push_front(t2.back());
      t2.pop_back();
    }
  }
  bool request(Id x) override {
    const auto n1 = static_cast<double>(b1.size()), n2 = static_cast<double>(b2.size());
    if (has(t1, x) || has(t2, x)) {  // case I
      erase(t1, x), erase(t2, x);
      t2.push_front(x);
      return true;
    }
    if (has(b1, x)) {  // case II
      p = std::min(static_cast<double>(c), p + (n1 >= n2 ? 1 : n2 / n1));
      replace(x);
      erase(b1, x);
      t2.push_front(x);
      return false;
    }
    if (has(b2, x)) {  // case III
      p = std::max(0.0, p - (n2 >= n1 ? 1 : n1 / n2));
      replace(x);
      erase(b2, x);
      t2.push_front(x);
      return false;
    }
    if (t1.size() + b1.size() == c) {  // case IV A
      if (t1.size() < c) {
        b1.pop_back();
        replace(x);
      } else {
        t1.pop_back();
      }
    } else if (t1.size() + t2.size() + b1.size() + b2.size() >= c) {  // case IV B
      if (t1.size() + t2.size() + b1.size() + b2.size() == 2 * c) b2.pop_back();
      replace(x);
    }
    t1.push_front(x);
    return false;
  }
};

/// Yang et al., SOSP 2023, algorithm 1; bits are cleared on the way to the main queue, one block leaves at a time.
struct NaiveS3Fifo final : Naive {
  using Naive::Naive;
  Ids small, main, ghost;
  std::map<Id, int> freq;
  bool evict_main() {
    while (!main.empty()) {
      const Id t = main.back();
      main.pop_back();
      if (freq[t] == 0) return true;
      --freq[t];
      main.push_front(t);
    }
    return false;
  }
  bool evict_small() {
    while (!small.empty()) {
      const Id t = small.back();
      small.pop_back();
      if (freq[t] <= 1) {
        ghost.push_front(t);
        while (ghost.size() * 10 > c * 9) ghost.pop_back();
        return true;
      }
      freq[t] = 0;
      main.push_front(t);
      if (main.size() * 10 > c * 9 && evict_main()) return true;
    }
    return false;
  }
  bool request(Id x) override {
    if (has(small, x) || has(main, x)) {
      freq[x] = std::min(freq[x] + 1, 3);
      return true;
    }
    if (small.size() + main.size() == c) {
      const bool first = small.size() * 10 >= c ? evict_small() : evict_main();
      if (!first && !evict_main()) evict_small();
    }
    (has(ghost, x) ? main : small).push_front(x);
    erase(ghost, x);
    freq[x] = 0;
    return false;
  }
};

std::unique_ptr<Naive> naive(std::string_view name, std::size_t capacity) {
  if (name == "lru") return std::make_unique<NaiveLru>(capacity);
  if (name == "fifo") return std::make_unique<NaiveFifo>(capacity);
  if (name == "lfu") return std::make_unique<NaiveLfu>(capacity);
  if (name == "arc") return std::make_unique<NaiveArc>(capacity);
  return std::make_unique<NaiveS3Fifo>(capacity);
}

/// Popular ids, ids that are asked for again soon, and scans.
Id draw(Rng& rng, Id step) {
  const double u = rng.unit();
  if (u < 0.5) return static_cast<Id>(std::exp(rng.unit() * std::log(300.0)));
  if (u < 0.8) return 1000 + step / 50 + rng.below(30);
  return 100'000 + step;
}

}  // namespace

TEST_CASE("every policy hits exactly where a naive model of its paper hits") {
  const auto* name = GENERATE("lru", "fifo", "lfu", "arc", "s3fifo");
  const std::size_t capacity = GENERATE(1, 2, 7, 10, 64, 200);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    INFO(name << ", capacity " << capacity << ", seed " << seed);
    Rng rng(seed, "evictions");
    KvBlockManager tier = manager(capacity, name);
    const auto model = naive(name, capacity);
    std::uint64_t hits = 0;
    for (Id step = 0; step < 6000; ++step) {
      const std::vector<KvBlockId> block{{draw(rng, step)}};
      const bool hit = tier.lookup(block).blocks == 1;
      REQUIRE(hit == model->request(block[0].value));
      hits += hit;
      store(tier, block);
    }
    CHECK((capacity < 7 || hits > 100));
  }
}

/// Asks for blocks one by one; 0 stands for a step in which nothing leaves.
void expect_evictions(KvBlockManager& tier, const std::vector<std::pair<Id, Id>>& asked_and_evicted) {
  for (const auto& [asked, evicted] : asked_and_evicted) {
    INFO("asked for " << asked);
    const auto stored = tier.prepare_store(ids({asked}), SimTime{});
    REQUIRE(stored);
    CHECK(stored->evicted == (evicted == 0 ? std::vector<KvBlockId>{} : ids({evicted})));
    if (!stored->stored.empty()) tier.complete_store(stored->job, true);
  }
}

// Figure 4, REPLACE: "and ((x is in B2 and |T1| = p) or |T1| > p)".
TEST_CASE("ARC takes from T1 if that is as long as its target and the block was used often") {
  KvBlockManager tier = manager(3, "arc");
  expect_evictions(tier, {{1, 0}, {1, 0}, {2, 0}, {3, 0}});  // T1 = 2 3, T2 = 1, p = 0
  expect_evictions(tier, {{4, 2}});                          // |T1| > p: T1 = 3 4, B1 = 2
  expect_evictions(tier, {{2, 3}});                          // 2 is in B1, p = 1: T1 = 4, T2 = 1 2, B1 = 3
  expect_evictions(tier, {{3, 1}});                          // 3 is in B1, p = 2: T1 = 4, T2 = 2 3, B2 = 1
  expect_evictions(tier, {{1, 4}});                          // 1 is in B2, p = 1 = |T1|: 4 leaves, not 2
}

TEST_CASE("ARC takes from T2 if T1 is as long as its target and the block is new") {
  KvBlockManager tier = manager(3, "arc");
  expect_evictions(tier, {{1, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 2}, {2, 3}});  // T1 = 4, T2 = 1 2, B1 = 3, p = 1
  expect_evictions(tier, {{5, 1}});
}

TEST_CASE("a setting that a policy does not have is refused") {
  const auto* name = GENERATE("lru", "fifo", "lfu", "arc", "s3fifo");
  const auto make = [&](const CachePolicyContext& context) { builtin_eviction_policies().at(name)(context); };
  make({8, {}});
  CHECK_THROWS_WITH(make({8, {{"small", "0.1"}}}), Catch::Contains(std::string(name) + " has no setting 'small'"));
}

TEST_CASE("no policy evicts a held block, and each finds the last one that may leave") {
  const auto* name = GENERATE("lru", "fifo", "lfu", "arc", "s3fifo");
  constexpr std::uint64_t kBlocks = 20;
  KvBlockManager tier = manager(kBlocks, name);
  for (std::uint64_t i = 0; i < kBlocks; ++i) store(tier, ids({i}));
  for (std::uint64_t i = 0; i < kBlocks; i += 3) tier.touch(ids({i}));
  for (std::uint64_t free = 0; free < kBlocks; ++free) {
    std::vector<KvJobId> loads;
    for (std::uint64_t i = 0; i < kBlocks; ++i)
      if (i != free) loads.push_back(tier.prepare_load(ids({i}), SimTime{}).job);
    const auto stored = tier.prepare_store(ids({100 + free}), SimTime{});
    REQUIRE(stored);
    CHECK(stored->evicted == ids({free}));
    CHECK_FALSE(tier.prepare_store(ids({200}), SimTime{}));
    tier.complete_store(stored->job, false);  // frees the place again
    for (const KvJobId load : loads) tier.complete_load(load, true);
    store(tier, ids({free}));
  }
}

}  // namespace test_eviction
