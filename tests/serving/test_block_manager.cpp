// The rules of the manager, and the faults that managers of KV blocks have had.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "host_runtime/core/serving/prefix_curve.h"
#include "serving_support.h"

namespace test_block_manager {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;
using End = KvBlockManager::Lookup::End;
using Kind = KvBlockEvent::Kind;

TEST_CASE("a chained id stands for all tokens before it, and a tier has whole blocks only") {
  const std::vector<std::uint32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9}, other{9, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto a = chained_ids(tokens, 2), b = chained_ids(other, 2);
  REQUIRE(a.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(a[i] != b[i]);
  CHECK(chained_ids(tokens, 2, 1) != a);
  CHECK(chained_ids(std::span(tokens).first(5), 2) == std::vector<KvBlockId>{a[0], a[1]});
  CHECK(whole_tier_blocks(a, 2) == std::vector<KvBlockId>{a[1], a[3]});
  CHECK(whole_tier_blocks(a, 3) == std::vector<KvBlockId>{a[2]});
  CHECK(whole_tier_blocks(a, 1) == a);
  CHECK_THROWS_AS(whole_tier_blocks(a, 0), UserError);
}

TEST_CASE("a block passes through its states, and events tell what lookups see") {
  KvBlockManager tier = manager(2);
  std::vector<std::pair<Kind, std::uint64_t>> events;
  tier.on_event([&](const KvBlockEvent& e) { events.emplace_back(e.kind, e.id.value); });
  const auto store = tier.prepare_store(ids({1, 2}), SimTime{});
  REQUIRE(store);
  CHECK(store->stored == ids({2, 1}));  // from the last to the first
  CHECK(tier.state({1}) == KvBlockState::writing);
  CHECK(tier.lookup(ids({1, 2})).blocks == 0);
  CHECK(tier.lookup(ids({1, 2})).end == End::pending);
  CHECK(tier.complete_store(store->job, true));
  CHECK(tier.state({1}) == KvBlockState::ready);
  CHECK(tier.lookup(ids({1, 2, 3})).blocks == 2);
  CHECK(tier.lookup(ids({1, 2, 3})).end == End::miss);
  CHECK(tier.lookup(ids({3, 1})).blocks == 0);  // behind a gap nothing counts
  const auto load = tier.prepare_load(ids({1}), SimTime{});
  CHECK(tier.state({1}) == KvBlockState::loading);
  const auto next = tier.prepare_store(ids({3}), SimTime{});
  REQUIRE(next);
  CHECK(next->evicted == ids({2}));  // 1 is older and has a reader
  CHECK(tier.complete_store(next->job, true));
  CHECK(tier.complete_load(load.job, true));
  CHECK(tier.state({1}) == KvBlockState::ready);
  tier.drop({1});
  CHECK(tier.state({1}) == KvBlockState::absent);
  using E = std::pair<Kind, std::uint64_t>;
  CHECK(events == std::vector<E>{
                      {Kind::stored, 2}, {Kind::stored, 1}, {Kind::evicted, 2}, {Kind::stored, 3}, {Kind::dropped, 1}});
  CHECK(tier.stored_blocks() == 3);
  CHECK_THROWS_AS(tier.prepare_load(ids({9}), SimTime{}), InternalError);
}

TEST_CASE("a store that does not fit changes nothing") {
  KvBlockManager tier = manager(4);
  store(tier, ids({1, 2, 3, 4}));
  const auto load = tier.prepare_load(ids({1, 2}), SimTime{});
  CHECK_FALSE(tier.prepare_store(ids({5, 6, 7}), SimTime{}));
  CHECK(tier.lookup(ids({1, 2, 3, 4})).blocks == 4);
  CHECK(tier.usage().idle == 2);
  CHECK(tier.prepare_store(ids({5, 6}), SimTime{}));
  CHECK(tier.complete_load(load.job, true));
  // More blocks than the capacity are never stored, also if many of them are there.
  KvBlockManager small = manager(3);
  store(small, ids({1, 2, 3}));
  CHECK_FALSE(small.prepare_store(ids({1, 2, 3, 4}), SimTime{}));
  CHECK(small.lookup(ids({1, 2, 3})).blocks == 3);
}

TEST_CASE("a prefix outlives its tail") {
  KvBlockManager tier = manager(5);
  store(tier, ids({1, 2}));
  store(tier, ids({1, 2, 3, 4}));  // 3 and 4 are new, 1 and 2 are older and yet used later
  store(tier, ids({8, 9}));
  CHECK(tier.lookup(ids({1, 2, 3, 4})).blocks == 3);
}

// vLLM 49176
TEST_CASE("after a failed load the block is a miss for everybody, also with other readers") {
  KvBlockManager tier = manager(2);
  store(tier, ids({1, 2}));
  const auto bad = tier.prepare_load(ids({1, 2}), SimTime{}), good = tier.prepare_load(ids({1}), SimTime{});
  CHECK(tier.complete_load(bad.job, false));
  CHECK(tier.lookup(ids({1, 2})).blocks == 0);
  CHECK(tier.lookup(ids({1, 2})).end == End::miss);
  CHECK(tier.usage().taken == 1);  // the other reader still has the slot
  const auto again = tier.prepare_store(ids({1}), SimTime{});
  REQUIRE(again);
  CHECK(again->slots.front() != good.slots.front());
  CHECK(tier.complete_store(again->job, true));
  CHECK(tier.lookup(ids({1})).blocks == 1);
  CHECK(tier.complete_load(good.job, false));  // that reader fails, too: the block stored since then is another one
  CHECK(tier.lookup(ids({1})).blocks == 1);
  CHECK(tier.usage().taken == 1);
}

// vLLM 49829
TEST_CASE("a pending block has a deadline, and a late completion changes nothing") {
  KvBlockManager tier = manager(4, "lru", SimTime::milliseconds(10));
  const auto store_job = tier.prepare_store(ids({1, 2}), SimTime::milliseconds(1));
  REQUIRE(store_job);
  CHECK(tier.next_deadline() == SimTime::milliseconds(11));
  CHECK(tier.expire(SimTime::picoseconds(SimTime::milliseconds(11).ps - 1)) == 0);
  CHECK(tier.lookup(ids({1})).end == End::pending);
  CHECK(tier.expire(SimTime::milliseconds(11)) == 1);
  CHECK(tier.lookup(ids({1})).end == End::miss);
  CHECK(tier.usage().taken == 0);
  CHECK_FALSE(tier.complete_store(store_job->job, true));
  CHECK(tier.state({1}) == KvBlockState::absent);
  store(tier, ids({3}));
  const auto load = tier.prepare_load(ids({3}), SimTime::milliseconds(20));
  CHECK(tier.expire(SimTime::milliseconds(30)) == 1);
  CHECK(tier.state({3}) == KvBlockState::absent);
  CHECK_FALSE(tier.complete_load(load.job, true));
  CHECK(tier.next_deadline() == SimTime::max());
}

// vLLM 46014
TEST_CASE("a preempted request that comes back while its blocks are loaded reads them beside its first load") {
  KvBlockManager tier = manager(1);
  store(tier, ids({1}));
  const auto first = tier.prepare_load(ids({1}), SimTime{});
  CHECK(tier.lookup(ids({1})).blocks == 1);
  const auto second = tier.prepare_load(ids({1}), SimTime{});
  CHECK(tier.complete_load(first.job, true));
  CHECK(tier.state({1}) == KvBlockState::loading);
  CHECK_FALSE(tier.prepare_store(ids({2}), SimTime{}));  // would overwrite what the second load reads
  CHECK(tier.complete_load(second.job, true));
  CHECK_FALSE(tier.complete_load(second.job, true));
  CHECK(tier.prepare_store(ids({2}), SimTime{}));
}

// Mooncake 2976
TEST_CASE("a new block is not the next to leave") {
  const auto* policy = GENERATE("lru", "fifo", "arc", "lfu");
  KvBlockManager tier = manager(3, policy);
  for (const std::uint64_t id : {1, 2, 3, 4}) store(tier, ids({id}));
  CHECK(tier.lookup(ids({4})).blocks == 1);
  CHECK(tier.lookup(ids({1})).blocks == 0);
  store(tier, ids({5}));
  CHECK(tier.lookup(ids({4})).blocks == 1);
}

// LMCache 2765
TEST_CASE("the second of identical rounds hits fully") {
  const auto* policy = GENERATE("lru", "fifo", "lfu", "arc", "s3fifo");
  KvBlockManager tier = manager(30, policy);
  PrefixHits first, second;
  for (PrefixHits* const round : {&first, &second})
    for (std::uint64_t request = 0; request < 10; ++request)
      replay_request({48, ids({10 * request + 1, 10 * request + 2, 10 * request + 3})}, 16, tier, *round);
  CHECK(first.hit_blocks == 0);
  CHECK(second.hit_blocks == 30);
  CHECK(second.stored_blocks == 0);
}

TEST_CASE("blocks that are held do not count as full, and full is not held") {
  KvBlockManager tier = manager(100);
  store(tier, ids({1, 2, 3, 4, 5}));
  const auto load = tier.prepare_load(ids({1, 2}), SimTime{});
  const auto writing = tier.prepare_store(ids({6}), SimTime{});
  const KvBlockManager::Usage usage = tier.usage();
  CHECK(usage.taken == 6);
  CHECK(usage.writing == 1);
  CHECK(usage.reading == 2);
  CHECK(usage.idle == 3);
}

TEST_CASE("an eviction policy that breaks its contract is named") {
  struct Bad final : EvictionPolicy {
    std::string_view name() const override { return "bad"; }
    void stored(KvBlockSlot, KvBlockId) override {}
    void used(KvBlockSlot) override {}
    void removed(KvBlockSlot) override {}
    std::optional<KvBlockSlot> evict(KvBlockId, std::span<const std::uint32_t>) override { return answer; }
    std::optional<KvBlockSlot> answer;
  };
  for (const std::optional<KvBlockSlot> answer : {std::optional<KvBlockSlot>{}, std::optional<KvBlockSlot>{77}}) {
    auto bad = std::make_unique<Bad>();
    bad->answer = answer;
    KvBlockManager tier({1, SimTime::max()}, std::move(bad), admission("always"));
    store(tier, ids({1}));
    CHECK_THROWS_WITH(store(tier, ids({2})), Catch::Contains("eviction policy bad evicts"));
  }
}

}  // namespace test_block_manager
