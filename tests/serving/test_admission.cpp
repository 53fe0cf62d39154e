#include <catch2/catch.hpp>

#include "host_runtime/core/serving/prefix_curve.h"
#include "serving_support.h"

namespace test_admission {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;
using Catch::Contains;

TEST_CASE("the n-th sighting stores a block, and asking does not count") {
  const auto third = admission("nth_sighting", {}, {{"n", "3"}});
  for (int sighting = 1; sighting <= 4; ++sighting) {
    third->seen({7});
    for (int ask = 0; ask < 5; ++ask) CHECK(third->admits({7}) == (sighting >= 3));
  }
  CHECK_FALSE(third->admits({8}));
  CHECK_THROWS_WITH(admission("nth_sighting", {}, {{"n", "0"}}), Contains("nth_sighting: setting n"));
  CHECK_THROWS_WITH(admission("nth_sighting", {}, {{"m", "2"}}), Contains("has no setting 'm'"));
  CHECK_THROWS_WITH(admission("always", {}, {{"n", "2"}}), Contains("always has no setting 'n'"));
}

TEST_CASE("a frequency is forgotten, and one-time blocks are kept out") {
  const auto frequent = admission("frequency", 100, {{"window", "1000"}});
  frequent->seen({7});
  CHECK_FALSE(frequent->admits({7}));
  frequent->seen({7});
  CHECK(frequent->admits({7}));
  std::uint64_t admitted = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    frequent->seen({1000 + i});
    admitted += frequent->admits({1000 + i});
  }
  CHECK_FALSE(frequent->admits({7}));  // two windows later
  CHECK(admitted < 200);               // counters are shared
}

TEST_CASE("a filter stores less, and what is not admitted leaves a gap that ends the hit") {
  KvBlockManager tier({10, SimTime::max()}, eviction("lru", 10), admission("nth_sighting"));
  PrefixHits hits;
  const auto first = ids({1, 2, 3}), second = ids({1, 2, 4});
  replay_request({48, first}, 16, tier, hits);
  CHECK(hits.stored_blocks == 0);
  replay_request({40, second}, 16, tier, hits);
  CHECK(hits.stored_blocks == 2);
  CHECK(hits.hit_blocks == 0);
  replay_request({40, second}, 16, tier, hits);
  CHECK(hits.hit_blocks == 2);
  CHECK(hits.hit_tokens == 32);
  replay_request({40, second}, 16, tier, hits);
  CHECK(hits.hit_blocks == 5);
  CHECK(hits.hit_tokens == 72);  // the last block has 8 tokens
}

}  // namespace test_admission
