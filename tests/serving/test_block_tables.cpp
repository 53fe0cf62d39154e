#include <catch2/catch.hpp>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/serving/kv_block_tables.h"
#include "serving_support.h"

namespace test_block_tables {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

std::vector<std::uint32_t> count_from(std::uint32_t first, std::size_t count) {
  std::vector<std::uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

KvBlockTables tables(std::uint64_t blocks) { return {blocks, 4, eviction("lru", blocks)}; }

constexpr SequenceId kA{0}, kB{1}, kC{2};

}  // namespace

TEST_CASE("sequences with equal prefixes share whole blocks") {
  KvBlockTables pool = tables(10);
  CHECK(pool.create(kA, count_from(0, 10)) == 0u);
  CHECK(pool.create(kB, count_from(0, 9)) == 8u);
  CHECK(pool.table(kA).size() == 3);
  CHECK(pool.table(kA)[1] == pool.table(kB)[1]);
  CHECK(pool.table(kA)[2] != pool.table(kB)[2]);
  CHECK(pool.free_blocks() == 6);
  CHECK(pool.create(kC, count_from(0, 8), 1) == 0u);  // another tenant
  pool.free(kA);
  pool.free(kB);
  CHECK(pool.free_blocks() == 8);
  CHECK(pool.create(kA, count_from(0, 8)) == 8u);  // what has ended is found
  CHECK_THROWS_AS(pool.create(kA, count_from(0, 1)), InternalError);
}

TEST_CASE("a fork copies a shared block that is not full when one of the two writes") {
  KvBlockTables pool = tables(10);
  pool.create(kA, count_from(0, 6));
  pool.fork(kA, kB);
  CHECK(pool.free_blocks() == 8);
  const KvBlockSlot shared = pool.table(kA)[1];
  const auto copies = pool.append(kB, count_from(100, 1));
  REQUIRE(copies);
  CHECK(*copies == KvBlockTables::Copies{{shared, pool.table(kB)[1]}});
  CHECK(pool.append(kA, count_from(6, 1))->empty());  // it is alone in its block now
  CHECK(pool.table(kA)[0] == pool.table(kB)[0]);
  CHECK(pool.tokens(kA) == 7);
  CHECK(pool.append(kA, count_from(7, 1))->empty());
  CHECK(pool.append(kB, count_from(101, 1))->empty());
  CHECK(pool.ids(kA)[1] != pool.ids(kB)[1]);
  // A fork at the end of a block has nothing to copy.
  pool.fork(kA, kC);
  CHECK(pool.append(kC, count_from(8, 1))->empty());
}

TEST_CASE("without room nothing changes") {
  KvBlockTables pool = tables(3);
  pool.create(kA, count_from(0, 10));
  CHECK_FALSE(pool.create(kB, count_from(0, 20)));
  CHECK_FALSE(pool.append(kA, count_from(10, 3)));
  CHECK(pool.tokens(kA) == 10);
  pool.fork(kA, kB);
  CHECK_FALSE(pool.append(kB, count_from(50, 1)));  // its copy does not fit
  CHECK(pool.table(kB).size() == 3);
  pool.free(kB);
  CHECK(pool.append(kA, count_from(10, 2)));
}

TEST_CASE("blocks that a transfer fills stay when their sequence is preempted") {
  KvBlockTables pool = tables(3);
  pool.create(kA, count_from(0, 12));
  const std::vector<KvBlockSlot> filled(pool.table(kA).begin(), pool.table(kA).end());
  pool.hold(filled);
  pool.free(kA);
  CHECK_FALSE(pool.create(kB, count_from(100, 1)));
  pool.release(filled);
  CHECK(pool.create(kB, count_from(100, 1)));
}

TEST_CASE("random sequences: no block is lost, and contents are those of the tokens") {
  constexpr std::uint64_t kSeed = 7;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "tables");
  KvBlockTables pool = tables(24);
  std::map<std::uint32_t, std::vector<std::uint32_t>> model;
  std::map<KvBlockSlot, std::vector<std::uint32_t>> contents;  // what the GPU would have written
  const auto write = [&](std::uint32_t s, std::size_t from) {
    const auto table = pool.table(SequenceId{s});
    for (std::size_t t = from; t < model[s].size(); ++t) {
      auto& block = contents[table[t / 4]];
      block.resize(t % 4);
      block.push_back(model[s][t]);
    }
  };
  std::uint64_t copied = 0, refused = 0, shared = 0;
  for (int step = 0; step < 20'000; ++step) {
    const auto s = static_cast<std::uint32_t>(rng.below(8));
    const auto tokens = count_from(static_cast<std::uint32_t>(rng.below(3)), 1 + rng.below(15));
    if (!model.contains(s)) {
      const auto found = pool.create(SequenceId{s}, tokens);
      refused += !found;
      if (!found) continue;
      shared += *found > 0;
      model[s] = tokens;
      write(s, *found);
    } else if (rng.below(3) == 0) {
      pool.free(SequenceId{s});
      model.erase(s);
    } else if (const auto child = static_cast<std::uint32_t>(rng.below(8)); !model.contains(child)) {
      pool.fork(SequenceId{s}, SequenceId{child});
      model[child] = model[s];
    } else if (const auto copies = pool.append(SequenceId{s}, tokens)) {
      for (const auto& [from, to] : *copies) contents[to] = contents[from];
      copied += copies->size();
      const std::size_t from = model[s].size();
      model[s].insert(model[s].end(), tokens.begin(), tokens.end());
      write(s, from);
    }
    std::map<KvBlockSlot, std::uint32_t> holds;
    for (const auto& [sequence, all] : model) {
      const auto table = pool.table(SequenceId{sequence});
      REQUIRE(table.size() == (all.size() + 3) / 4);
      for (std::size_t t = 0; t < all.size(); ++t)
        if (contents[table[t / 4]][t % 4] != all[t]) FAIL("token " << t << " at step " << step);
      for (const KvBlockSlot slot : table) ++holds[slot];
    }
    for (const auto& [slot, count] : holds) REQUIRE(pool.holds(slot) == count);
    REQUIRE(pool.free_blocks() == 24 - holds.size());
  }
  CHECK(copied > 100);
  CHECK(refused > 100);
  CHECK(shared > 100);
}

}  // namespace test_block_tables
