// Rows that the filters of the flash controllers drop take no part in attention.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "attention_engine/core/sparf.h"
#include "memory_kv_source.h"

namespace test_filtered_rows {

using namespace csdsim;
using namespace csdsim::engine;
using namespace csdsim::engine::test;

TEST_CASE("what filters drop takes no part: pages that hold nothing but what passes give the same bits") {
  const CacheShape shape{.tokens = 700, .head_dim = 64, .page_size = 1024, .embedding_group = 8};
  const SparfParams params{.r = 9, .k = 90, .l = 10};
  MemoryKvSource whole, holed;
  whole.add(kHead, shape, 5);
  holed.add(kHead, shape, 5);
  const std::vector<float> q = random_query(2 * 64, 6);
  SparfAttention a, b;
  a.select_components(whole.view(kHead), params, q, 2);
  b.select_components(holed.view(kHead), params, q, 2);
  const Half nan = float_to_half(std::nanf(""));
  // Phase A: only the chosen components of all keys are left.
  const std::vector<Half> keys = holed.keys(kHead);
  std::fill(holed.keys(kHead).begin(), holed.keys(kHead).end(), nan);
  for (std::uint32_t j = 0; j < shape.tokens; ++j)
    for (const std::uint32_t i : a.components()) holed.keys(kHead)[j * 64 + i] = keys[j * 64 + i];
  holed.refresh(kHead);
  a.score_tokens(whole, kHead);
  b.score_tokens(holed, kHead);
  a.select_tokens();
  b.select_tokens();
  REQUIRE(std::ranges::equal(a.tokens(), b.tokens()));
  // Phase B: only the rows of the chosen tokens.
  std::vector<Half>& holed_keys = holed.keys(kHead);
  std::vector<Half>& holed_values = holed.values(kHead);
  std::fill(holed_keys.begin(), holed_keys.end(), nan);
  const std::vector<Half> values = holed_values;
  std::fill(holed_values.begin(), holed_values.end(), nan);
  for (const std::uint32_t j : a.tokens())
    for (std::uint32_t i = 0; i < 64; ++i) {
      holed_keys[j * 64 + i] = keys[j * 64 + i];
      holed_values[j * 64 + i] = values[j * 64 + i];
    }
  std::vector<float> of_whole(2 * 64), of_holed(2 * 64);
  a.attend(whole, kHead, of_whole);
  b.attend(holed, kHead, of_holed);
  CHECK(of_whole == of_holed);
}

}  // namespace test_filtered_rows
