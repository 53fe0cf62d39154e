// Drafts from earlier occurrences of the latest tokens, and the cache that loses tokens again.
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/attention/kv_cache.h"
#include "host_runtime/core/features/drafts/draft_lookup.h"
#include "host_runtime/core/features/drafts/token_drafts.h"

namespace test_token_drafts {

using namespace csdsim;
using namespace csdsim::host;

namespace {

std::vector<TokenId> tokens(std::initializer_list<std::uint32_t> ids) {
  std::vector<TokenId> list;
  for (const std::uint32_t id : ids) list.emplace_back(id);
  return list;
}

}  // namespace

TEST_CASE("a draft is what followed the newest occurrence of the longest run of latest tokens") {
  CHECK(lookup_draft(tokens({}), 4).empty());
  CHECK(lookup_draft(tokens({1, 2, 3}), 4).empty());
  CHECK(lookup_draft(tokens({1, 2, 3, 9, 1, 2, 3}), 2) == tokens({9, 1}));
  CHECK(lookup_draft(tokens({1, 2, 3, 9, 5, 2, 3, 8, 1, 2, 3}), 1) == tokens({9}));  // three tokens before two
  CHECK(lookup_draft(tokens({7, 3, 4, 8, 3, 5, 6, 3}), 3) == tokens({5, 6, 3}));     // the newest occurrence
  CHECK(lookup_draft(tokens({5, 5, 5, 5}), 8) == tokens({5}));  // an occurrence may overlap; what follows is the end
  CHECK(lookup_draft(tokens({4, 4}), 0).empty());
}

TEST_CASE("drafts end with the output, and what was chosen must be possible") {
  TokenDrafts drafts(4, {5, 1});
  drafts.chose(SequenceId{0}, 1, tokens({1, 2, 3, 4, 5, 6, 1}));
  CHECK(drafts.proposed(SequenceId{0}).size() ==
        3);  // four tokens are left, and a step yields one more than it accepts
  drafts.chose(SequenceId{1}, 1, tokens({1, 1, 1}));
  CHECK(drafts.proposed(SequenceId{1}).size() == 0);
  CHECK_THROWS_AS(drafts.chose(SequenceId{0}, 5, tokens({1})), InternalError);
  CHECK_THROWS_AS(drafts.chose(SequenceId{0}, 0, tokens({1})), InternalError);
  drafts.chose(SequenceId{0}, 3, tokens({1, 2, 3, 4, 5, 6, 1, 2, 3, 9}));
  CHECK(drafts.proposed(SequenceId{0}).size() == 0);  // one token is left
  CHECK(drafts.all_verified() == 3);
  CHECK(drafts.all_accepted() == 2);
  CHECK_THROWS_AS(drafts.chose(SequenceId{1}, 1, tokens({1})), InternalError);
}

TEST_CASE("a cache that lost its newest tokens equals one that never had them") {
  const std::uint64_t seed = GENERATE(take(5, random(1, 1'000'000)));
  CAPTURE(seed);
  Rng rng(seed, "truncate");
  ModelConfig shape;
  shape.layers = 2;
  shape.kv_heads = 2;
  shape.head_dim = 4;
  HostKvCache cache(shape, KeyLayout::token_and_component_major), never(shape, KeyLayout::token_and_component_major);
  cache.create(SequenceId{7});
  never.create(SequenceId{7});
  const auto append = [&](HostKvCache& to, const std::vector<Half>& rows) {
    to.append(SequenceId{7}, LayerId{1}, rows, rows);
  };
  std::size_t kept = 0;
  for (int step = 0; step < 60; ++step) {
    std::vector<Half> rows((1 + rng.below(4)) * 8);
    for (Half& value : rows) value = float_to_half(float(rng.below(1000)) / 500 - 1);
    const std::size_t stay = rng.below(rows.size() / 8 + 1);
    append(cache, rows);
    cache.truncate(SequenceId{7}, LayerId{1}, kept + stay);
    append(never, {rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(stay * 8)});
    kept += stay;
    for (const std::uint32_t head : {0u, 1u}) {
      const KvView a = cache.view(SequenceId{7}, LayerId{1}, KvHead{head});
      const KvView b = never.view(SequenceId{7}, LayerId{1}, KvHead{head});
      REQUIRE(a.tokens == b.tokens);
      CHECK(std::ranges::equal(a.keys, b.keys));
      CHECK(std::ranges::equal(a.values, b.values));
      CHECK(std::ranges::equal(a.value_mean, b.value_mean));
      for (std::size_t c = 0; c < 4; ++c)
        CHECK(std::ranges::equal(a.component_keys.subspan(c * a.component_stride, a.tokens),
                                 b.component_keys.subspan(c * b.component_stride, b.tokens)));
    }
  }
  CHECK_THROWS_AS(cache.truncate(SequenceId{7}, LayerId{1}, kept + 1), InternalError);
}

}  // namespace test_token_drafts
