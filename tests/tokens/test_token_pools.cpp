// The pools of tokens against an oracle of maps and sets that sorts all tokens in every step.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/features/token_pools/model/token_pools.h"

namespace test_token_pools {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;

namespace {

using Positions = std::vector<std::uint32_t>;

/// algorithms.md 8.3 word by word, by std::map, std::set and std::sort.
struct Oracle {
  PoolOptions options;
  std::map<std::uint32_t, std::uint32_t> rank = {};
  std::set<std::uint32_t> hot = {}, cold = {};
  Positions log = {};
  std::uint32_t steps = 0;
  Positions promoted = {}, demoted = {}, written = {};

  std::uint32_t tokens() const { return static_cast<std::uint32_t>(rank.size()); }
  std::uint32_t first_pinned() const {
    return tokens() - static_cast<std::uint32_t>(ceil_of(options.pinned, tokens()));
  }
  void start(std::uint32_t count, const Positions& hot_tokens) {
    hot.insert(hot_tokens.begin(), hot_tokens.end());
    for (std::uint32_t i = 0; i < count; ++i) {
      rank[i] = 0;
      if (hot.contains(i)) continue;
      cold.insert(i);
      log.push_back(i);
    }
  }
  void append() {
    hot.insert(tokens());
    rank.emplace(tokens(), 0);
  }
  void move(std::uint32_t token, std::set<std::uint32_t>& from, std::set<std::uint32_t>& to) {
    REQUIRE(from.erase(token) == 1);
    to.insert(token);
  }
  void step(const Positions& important) {
    ++steps;
    promoted.clear(), demoted.clear(), written.clear();
    for (const std::uint32_t token : important)
      rank[token] = options.policy == PoolPolicy::naive ? steps : std::min(rank[token] + 1, 65'535u);
    // Best rank first, of equals the newer.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ranking;
    for (std::uint32_t i = 0; i < first_pinned(); ++i) ranking.emplace_back(rank[i], i);
    std::sort(ranking.rbegin(), ranking.rend());
    if (options.policy == PoolPolicy::naive) {
      promoted = important;
    } else {
      for (std::size_t i = 0; i < std::min<std::size_t>(ceil_of(options.kept_hot, tokens()), ranking.size()); ++i)
        promoted.push_back(ranking[i].second);
    }
    std::erase_if(promoted, [&](std::uint32_t token) { return hot.contains(token); });
    for (const std::uint32_t token : promoted) move(token, cold, hot);
    for (auto at = ranking.rbegin(); at != ranking.rend() && hot.size() > options.hot_tokens - 1; ++at)
      if (hot.contains(at->second)) demoted.push_back(at->second), move(at->second, hot, cold);
    std::sort(promoted.begin(), promoted.end());
    std::sort(demoted.begin(), demoted.end());
    for (const std::uint32_t token : demoted) {
      if (std::find(log.begin(), log.end(), token) != log.end()) continue;
      log.push_back(token);
      written.push_back(token);
    }
  }
};

struct Case {
  PoolOptions options;
  std::uint32_t prompt = 0, most_tokens = 0, steps = 0, important = 0;
  std::uint32_t stable = 1;  ///< important tokens are drawn from the positions that are multiples of this, or new ones
};

Positions draw(Rng& rng, std::uint32_t tokens, const Case& drawn) {
  std::set<std::uint32_t> set{tokens - 1};
  while (set.size() < std::min(drawn.important, tokens)) {
    std::uint32_t token = static_cast<std::uint32_t>(rng.below(tokens));
    if (rng.below(4) != 0) token -= token % drawn.stable;
    set.insert(token);
  }
  return {set.begin(), set.end()};
}

Case random_case(Rng& rng) {
  Case drawn;
  drawn.prompt = 1 + static_cast<std::uint32_t>(rng.below(120));
  drawn.most_tokens = drawn.prompt + static_cast<std::uint32_t>(rng.below(150));
  drawn.steps = 2500;
  drawn.important = 1 + static_cast<std::uint32_t>(rng.below(40));
  drawn.stable = 1 + static_cast<std::uint32_t>(rng.below(9));
  PoolOptions& options = drawn.options;
  options.policy = rng.below(3) == 0 ? PoolPolicy::naive : PoolPolicy::hit_table;
  options.pinned = Ratio::of(rng.below(5), 10);
  if (options.policy == PoolPolicy::hit_table) options.kept_hot = Ratio::of(rng.below(6), 10);
  options.hot_tokens = std::max<std::uint64_t>(2, hot_tokens_needed(options, drawn.most_tokens)) + rng.below(60);
  if (options.policy == PoolPolicy::naive) options.hot_tokens += drawn.important;
  return drawn;
}

/// All hot, or as few as may be.
Positions first_hot(const Case& drawn, Rng& rng) {
  const auto pinned = static_cast<std::uint32_t>(ceil_of(drawn.options.pinned, drawn.prompt));
  Positions hot;
  for (std::uint32_t i = 0; i < drawn.prompt; ++i) {
    const std::uint64_t left = drawn.options.hot_tokens - 1 - hot.size();
    if (i >= drawn.prompt - pinned || (left > pinned && rng.below(3) != 0)) hot.push_back(i);
  }
  return hot;
}

void check_equal(const TokenPools& pools, const PoolMoves& moves, const Oracle& oracle) {
  REQUIRE(moves.promoted == oracle.promoted);
  REQUIRE(moves.demoted == oracle.demoted);
  REQUIRE(moves.written == oracle.written);
  REQUIRE(pools.tokens() == oracle.tokens());
  REQUIRE(pools.hot_count() == oracle.hot.size());
  REQUIRE(pools.first_pinned() == oracle.first_pinned());
  REQUIRE(oracle.hot.size() + oracle.cold.size() == oracle.tokens());
}

void check_invariants(const TokenPools& pools, const PoolMoves& moves, std::uint32_t before) {
  REQUIRE(pools.hot_count() <= pools.options().hot_tokens - 1);
  for (const std::uint32_t token : moves.demoted) REQUIRE(token < pools.first_pinned());
  // Once the pool is full, a step demotes what it promotes and makes one place.
  if (before == pools.options().hot_tokens) REQUIRE(moves.demoted.size() == moves.promoted.size() + 1);
}

/// Everything about every token.
void check_tokens(const TokenPools& pools, const Oracle& oracle) {
  std::set<std::uint32_t> logged;
  for (std::uint32_t i = 0; i < pools.log().size(); ++i) {
    REQUIRE(logged.insert(pools.log()[i]).second);
    REQUIRE(pools.log_index(pools.log()[i]) == i);
  }
  REQUIRE(Positions(pools.log().begin(), pools.log().end()) == oracle.log);
  for (std::uint32_t token = 0; token < pools.tokens(); ++token) {
    REQUIRE(pools.hot(token) == oracle.hot.contains(token));
    REQUIRE(pools.hot(token) != oracle.cold.contains(token));
    REQUIRE(pools.rank(token) == oracle.rank.at(token));
    if (token >= pools.first_pinned()) REQUIRE(pools.hot(token));
    if (!pools.hot(token)) REQUIRE(pools.log_index(token).has_value());
    REQUIRE(pools.log_index(token).has_value() == logged.contains(token));
  }
}

}  // namespace

TEST_CASE("pools move the tokens that a sort over all of them names", "[tokens]") {
  const std::uint64_t seed = GENERATE(range(1, 61));
  CAPTURE(seed);
  Rng rng(seed, "token pools");
  const Case drawn = random_case(rng);
  CAPTURE(drawn.prompt, drawn.most_tokens, drawn.important, drawn.options.hot_tokens, drawn.options.pinned.numerator,
          drawn.options.kept_hot.numerator, drawn.options.policy == PoolPolicy::naive);
  const Positions hot = first_hot(drawn, rng);
  TokenPools pools(drawn.options);
  Oracle oracle{.options = drawn.options};
  pools.start(drawn.prompt, hot);
  oracle.start(drawn.prompt, hot);
  check_tokens(pools, oracle);
  for (std::uint32_t step = 0; step < drawn.steps; ++step) {
    if (pools.tokens() < drawn.most_tokens && rng.below(8) == 0) {
      REQUIRE(pools.append() == oracle.tokens());
      oracle.append();
      REQUIRE(pools.hot_count() <= drawn.options.hot_tokens);
    }
    const std::uint32_t before = pools.hot_count();
    const Positions important = draw(rng, pools.tokens(), drawn);
    const PoolMoves& moves = pools.step(important);
    oracle.step(important);
    check_equal(pools, moves, oracle);
    check_invariants(pools, moves, before);
    if (step % 50 == 0) check_tokens(pools, oracle);
  }
  check_tokens(pools, oracle);
}

TEST_CASE("of equal hits the newer token is hot, and the older one leaves", "[tokens]") {
  TokenPools pools({.hot_tokens = 4, .pinned = {0, 1}, .kept_hot = {1, 4}, .policy = PoolPolicy::hit_table});
  pools.start(8, Positions{0, 1, 2});
  // Two of 8 tokens are kept hot: 5, then 6 and 7 by their age alone. 0 and 1 leave for them.
  CHECK(pools.step(Positions{5}).promoted == Positions{5, 7});
  CHECK(pools.step(Positions{}).demoted.empty());
  CHECK_FALSE(pools.hot(0));
  CHECK_FALSE(pools.hot(1));
  CHECK(pools.hot(2));
  // 0 and 1 enter the log behind the prefill's cold tokens, and once.
  CHECK(Positions(pools.log().begin(), pools.log().end()) == Positions{3, 4, 5, 6, 7, 0, 1});
  CHECK(pools.step(Positions{0}).promoted == Positions{0});
  CHECK(pools.step(Positions{1}).promoted == Positions{1});  // 0, 1 and 5 have one hit each: the newer two are 1 and 5
  CHECK(pools.step(Positions{1, 5}).demoted.empty());
  CHECK(pools.log().size() == 8);  // 2 left, 7 was there
}

TEST_CASE("hits stay at the largest number of 16 bits", "[tokens]") {
  TokenPools pools({.hot_tokens = 3, .kept_hot = {1, 3}});
  pools.start(3, Positions{0});
  for (int i = 0; i < 65'534; ++i) pools.step(Positions{0});
  CHECK(pools.rank(0) == 65'534);
  for (int i = 0; i < 3; ++i) pools.step(Positions{0});
  CHECK(pools.rank(0) == 65'535);
  for (int i = 0; i < 65'535; ++i) pools.step(Positions{1});
  CHECK(pools.step(Positions{0}).promoted.empty());
  CHECK(pools.hot(1));  // as many hits, and newer
}

TEST_CASE("a token is not demoted while it is pinned, whatever it scores", "[tokens]") {
  TokenPools pools({.hot_tokens = 13, .pinned = {1, 2}, .kept_hot = {1, 10}});
  Positions hot{5, 6, 7, 8, 9};
  pools.start(10, hot);
  for (std::uint32_t i = 0; i < 9; ++i) {
    const std::uint32_t token = pools.append();
    pools.step(Positions{0, 1});
    for (std::uint32_t pinned = pools.first_pinned(); pinned <= token; ++pinned) CHECK(pools.hot(pinned));
    CHECK(pools.first_pinned() == token + 1 - (token + 2) / 2);
  }
}

TEST_CASE("a naive pool holds the important tokens of the last step, and those of the steps before while there is room",
          "[tokens]") {
  TokenPools pools({.hot_tokens = 5, .policy = PoolPolicy::naive});
  pools.start(10, Positions{0, 1, 2, 3});
  CHECK(pools.step(Positions{4, 9}).demoted == Positions{0, 1});
  CHECK(pools.step(Positions{2, 5}).demoted == Positions{3});
  CHECK(pools.step(Positions{6}).demoted == Positions{4});  // 4 and 9 were important at once; 4 is older
  CHECK(pools.step(Positions{0}).written.empty());
  CHECK_THROWS_WITH(pools.step(Positions{0, 1, 2, 3, 4}),
                    Contains("a hot pool of 5 tokens is too small for a context of 10") && Contains("take 6"));
}

TEST_CASE("a pool that becomes smaller or larger", "[tokens]") {
  TokenPools pools({.hot_tokens = 9, .kept_hot = {1, 5}});
  pools.start(10, Positions{0, 1, 2, 3, 4, 5, 6, 7});
  pools.set_hot_tokens(4);
  CHECK(pools.step(Positions{0}).demoted == Positions{1, 2, 3, 4, 5, 6});
  CHECK(pools.hot_count() == 3);  // 0 has a hit, 9 is the newest of the others, 7 is left
  pools.set_hot_tokens(11);
  CHECK(pools.step(Positions{0}).demoted.empty());
  CHECK_THROWS_AS(pools.set_hot_tokens(1), UserError);
}

TEST_CASE("pools without room and broken preconditions are refused", "[tokens]") {
  CHECK_THROWS_WITH(TokenPools({.hot_tokens = 1}), Contains("a hot pool of 1 tokens: at least 2"));
  CHECK_THROWS_WITH(TokenPools({.hot_tokens = 9, .pinned = {3, 2}}), Contains("3/2 of the tokens is above 1"));
  CHECK_THROWS_WITH(TokenPools({.hot_tokens = 9, .kept_hot = {1, 2}, .policy = PoolPolicy::naive}), Contains("naive"));
  const PoolOptions options{.hot_tokens = 5, .pinned = {1, 5}, .kept_hot = {1, 5}};
  CHECK(hot_tokens_needed(options, 10) == 5);
  CHECK(hot_tokens_needed(options, 11) == 7);  // 3 of each and the next one
  CHECK(hot_tokens_needed({.hot_tokens = 5, .pinned = {1, 1}, .kept_hot = {1, 1}}, 11) == 12);
  CHECK_THROWS_WITH(TokenPools(options).start(11, Positions{8, 9, 10}), Contains("pinned") && Contains("take 7"));
  CHECK_THROWS_AS(TokenPools(options).start(10, Positions{8}), InternalError);              // 9 is pinned
  CHECK_THROWS_AS(TokenPools(options).start(10, Positions{8, 9, 10}), InternalError);       // no such token
  CHECK_THROWS_AS(TokenPools(options).start(10, Positions{9, 8}), InternalError);           // does not ascend
  CHECK_THROWS_AS(TokenPools(options).start(10, Positions{0, 1, 2, 8, 9}), InternalError);  // no place for the next one
  TokenPools pools(options);
  pools.start(10, Positions{0, 1, 8, 9});
  CHECK(pools.append() == 10);
  CHECK_THROWS_AS(pools.append(), InternalError);
  CHECK_THROWS_AS(pools.start(10, Positions{8, 9}), InternalError);
  CHECK_THROWS_WITH(pools.step(Positions{}), Contains("context of 11"));
  pools.set_hot_tokens(9);
  CHECK_THROWS_AS(pools.step(Positions{3, 3}), InternalError);
  CHECK_THROWS_AS(pools.step(Positions{11}), InternalError);
}

}  // namespace test_token_pools
