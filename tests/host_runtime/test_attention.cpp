#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/simd.h"
#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/attention/attention_provider.h"
#include "tests/host_runtime/naive_attention.h"

namespace test_attention {

using namespace csdsim;
using namespace csdsim::host;

namespace {

// One layer, one KV head with `group` query heads, filled with `tokens` random tokens.
struct Fixture {
  ModelConfig config;
  HostKvCache cache;
  std::vector<float> q;
  std::mt19937 rng;

  Fixture(std::uint32_t group, std::uint32_t d, std::uint32_t tokens, unsigned seed)
      : config(shape(group, d)), cache(config, KeyLayout::token_and_component_major), rng(seed) {
    cache.create(SequenceId{0});
    for (std::uint32_t j = 0; j < tokens; ++j) cache.append(SequenceId{0}, LayerId{0}, halves(d, 1.5f), halves(d, 1));
    for (const Half h : halves(group * d, 1.5f)) q.push_back(half_to_float(h));
  }

  static ModelConfig shape(std::uint32_t group, std::uint32_t d) {
    ModelConfig config;
    config.layers = config.kv_heads = 1;
    config.heads = group;
    config.head_dim = d;
    return config;
  }

  std::vector<Half> halves(std::size_t count, float spread) {
    std::vector<Half> values(count);
    for (Half& value : values) {
      value = float_to_half(spread * (static_cast<float>(rng() % 20001) - 10000.0f) / 5000.0f);
    }
    return values;
  }

  KvView view() const { return cache.view(SequenceId{0}, LayerId{0}, KvHead{0}); }

  std::vector<float> attend(const HeadAttention& method, HeadSelection* selection = nullptr) const {
    std::vector<float> out(q.size(), -1.0f);
    method.attend(q, view(), out, selection);
    return out;
  }
};

double max_difference(const std::vector<float>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}
std::vector<std::uint32_t> positions(const HeadSelection& selection) {
  std::vector<std::uint32_t> result;
  for (const TokenIndex token : selection.tokens) result.push_back(token.value);
  return result;
}

}  // namespace

TEST_CASE("dense attention equals softmax in double") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const auto group = 1 + seed % 3, d = seed % 2 ? 64u : 40u;
    const Fixture f(group, d, 1 + seed * 13, seed);
    INFO("seed " << seed);
    CHECK(max_difference(f.attend(DenseAttention()), test::naive_dense(f.q, f.view())) < 2e-5);
  }
}

TEST_CASE("dense attention takes the documented order, bit for bit") {
  const Fixture f(1, 64, 100, 7);
  const KvView kv = f.view();
  std::vector<float> scores(100), expected(64, 0.0f);
  for (std::size_t j = 0; j < 100; ++j) scores[j] = simd::dot(f.q.data(), kv.keys.data() + j * 64, 64) * 0.125f;
  const float sum = simd::exp_shifted(scores.data(), 100, *std::max_element(scores.begin(), scores.end()));
  for (std::size_t j = 0; j < 100; ++j) simd::axpy(scores[j], kv.values.data() + j * 64, expected.data(), 64);
  for (float& x : expected) x /= sum;
  CHECK(f.attend(DenseAttention()) == expected);
}

TEST_CASE("attention over an empty cache is 0, over one token its value") {
  const Fixture empty(2, 64, 0, 1), one(2, 64, 1, 1);
  CHECK(empty.attend(DenseAttention()) == std::vector<float>(128, 0.0f));
  CHECK(empty.attend(SparqAttention({})) == std::vector<float>(128, 0.0f));
  const auto out = one.attend(DenseAttention());
  for (std::size_t i = 0; i < 128; ++i) CHECK(out[i] == half_to_float(one.view().values[i % 64]));
}

TEST_CASE("SparQ equals its definition in double, for groups and for all budgets") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const std::uint32_t group = seed % 3 == 0 ? 4 : 1, d = seed % 2 ? 64 : 32, tokens = 40 + 7 * seed;
    const Fixture f(group, d, tokens, seed);
    SparqOptions options;
    options.components = 1 + (seed * 5) % d;
    const std::uint32_t k = 1 + (seed * 11) % (tokens - 1), l = (seed * 3) % (k + 2);
    options.tokens = k;
    options.local = l;
    options.reallocate = seed % 5 != 0;
    options.mean = seed % 4 < 2 ? MeanValue::all : MeanValue::rest;
    options.group_top_k = seed % 2 ? GroupTopK::sum_logits : GroupTopK::sum_probabilities;
    INFO("seed " << seed << " group " << group << " d " << d << " S " << tokens << " r " << options.components << " k "
                 << k << " l " << l);
    HeadSelection selection;
    const auto out = f.attend(SparqAttention(options), &selection);
    const test::NaiveSparq naive = test::naive_sparq(f.q, f.view(), options);
    CHECK(selection.components == naive.components);
    // Index sets may differ only where the keys tie in fp32.
    const bool same_set = positions(selection) == naive.tokens;
    CHECK((same_set || naive.cut_margin < 1e-4));
    if (!same_set) continue;
    CHECK(max_difference(out, naive.out) < 5e-5);
    REQUIRE(selection.alpha.size() == group);
    CHECK(max_difference(selection.alpha, naive.alpha) < 1e-5);
  }
}

TEST_CASE("SparQ with all components and all tokens but the budget's edge is dense") {
  const Fixture f(4, 64, 200, 3);
  const auto dense = f.attend(DenseAttention());
  SECTION("k >= S takes the dense path, bit for bit") {
    HeadSelection selection;
    CHECK(f.attend(SparqAttention({.components = 4, .tokens = 200}), &selection) == dense);
    CHECK(selection.components.empty());
    CHECK(selection.tokens.size() == 200);
    CHECK(selection.alpha == std::vector<float>(4, 1.0f));
  }
  SECTION("equal values give that value, whatever is chosen") {
    Fixture equal(1, 32, 0, 5);
    const auto value = equal.halves(32, 1);
    for (int j = 0; j < 50; ++j) equal.cache.append(SequenceId{0}, LayerId{0}, equal.halves(32, 1), value);
    const auto out = equal.attend(SparqAttention({.components = 3, .tokens = 7, .local = 2}));
    for (std::size_t i = 0; i < 32; ++i) CHECK(out[i] == Approx(half_to_float(value[i])).margin(1e-5));
  }
  SECTION("alpha rises with k and stays in (0, 1]") {
    std::vector<float> last(4, 0.0f);
    for (std::uint32_t k = 8; k < 200; k += 8) {
      HeadSelection selection;
      f.attend(SparqAttention({.components = 16, .tokens = k, .local = 4}), &selection);
      for (std::size_t g = 0; g < 4; ++g) {
        CHECK(selection.alpha[g] >= last[g] - 1e-6f);
        CHECK(selection.alpha[g] > 0);
        CHECK(selection.alpha[g] <= 1 + 1e-6f);
      }
      last = selection.alpha;
    }
  }
}

TEST_CASE("SparQ edges") {
  Fixture f(1, 32, 60, 11);
  HeadSelection selection;
  SECTION("r >= d: tau is sqrt(d), alpha is the exact mass") {
    f.attend(SparqAttention({.components = 1000, .tokens = 59, .local = 1}), &selection);
    CHECK(selection.components.size() == 32);
    CHECK(selection.alpha[0] > 0.9f);
  }
  SECTION("l >= k: the newest k tokens") {
    f.attend(SparqAttention({.components = 4, .tokens = 5, .local = 50}), &selection);
    CHECK(positions(selection) == std::vector<std::uint32_t>{55, 56, 57, 58, 59});
  }
  SECTION("l = 0, zero query: ties go to the lowest tokens, the scores are uniform") {
    std::fill(f.q.begin(), f.q.end(), 0.0f);
    const auto out = f.attend(SparqAttention({.components = 4, .tokens = 6, .local = 0}), &selection);
    CHECK(positions(selection) == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5});
    CHECK(selection.components == std::vector<std::uint32_t>{0, 1, 2, 3});
    CHECK(selection.alpha[0] == Approx(0.1));
    for (const float x : out) CHECK(std::isfinite(x));
  }
  SECTION("a group in which one head does not use the chosen components") {
    Fixture pair(2, 32, 60, 13);
    for (std::size_t i = 0; i < 32; ++i) pair.q[i] = i < 2 ? 4.0f : 0.0f;
    for (std::size_t i = 0; i < 32; ++i) pair.q[32 + i] = i < 2 ? 0.0f : 0.5f;
    for (const float x : pair.attend(SparqAttention({.components = 2, .tokens = 8, .local = 1}))) {
      CHECK(std::isfinite(x));
    }
  }
  CHECK_THROWS_AS(SparqAttention({.components = 0}), UserError);
  CHECK_THROWS_AS(SparqAttention({.tokens = 0}), UserError);
}

TEST_CASE("top indices: largest first, ties to the lower index, NaN last") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> keys{1, 5, 5, nan, 5, -2};
  CHECK(top_indices(keys, 2) == std::vector<std::uint32_t>{1, 2});
  CHECK(top_indices(keys, 4) == std::vector<std::uint32_t>{0, 1, 2, 4});
  CHECK(top_indices(keys, 5) == std::vector<std::uint32_t>{0, 1, 2, 4, 5});
  CHECK(top_indices(keys, 99).size() == 6);
  CHECK(top_indices(keys, 0).empty());
  CHECK(top_indices(std::vector<float>{1, 1, 1, 5}, 2) == std::vector<std::uint32_t>{0, 3});
}

TEST_CASE("the cache keeps both layouts and the running mean, however tokens arrive") {
  ModelConfig config = Fixture::shape(4, 8);
  config.layers = 2;
  config.kv_heads = 2;
  HostKvCache one(config, KeyLayout::token_and_component_major), many(config, KeyLayout::token_and_component_major);
  one.create(SequenceId{3});
  many.create(SequenceId{3});
  Fixture random(1, 8, 0, 17);
  const auto k = random.halves(150 * 16, 1), v = random.halves(150 * 16, 1);
  many.append(SequenceId{3}, LayerId{1}, k, v);
  for (std::size_t j = 0; j < 150; ++j) {
    one.append(SequenceId{3}, LayerId{1}, std::span(k).subspan(j * 16, 16), std::span(v).subspan(j * 16, 16));
  }
  CHECK(one.tokens(SequenceId{3}, LayerId{0}) == 0);
  CHECK(one.tokens(SequenceId{3}, LayerId{1}) == 150);
  for (std::uint32_t head = 0; head < 2; ++head) {
    const KvView a = one.view(SequenceId{3}, LayerId{1}, KvHead{head});
    const KvView b = many.view(SequenceId{3}, LayerId{1}, KvHead{head});
    double mean = 0;
    for (std::size_t j = 0; j < 150; ++j) {
      for (std::size_t c = 0; c < 8; ++c) {
        const Half expected = k[j * 16 + head * 8 + c];
        REQUIRE(a.keys[j * 8 + c] == expected);
        REQUIRE(a.component_keys[c * a.component_stride + j] == expected);
        REQUIRE(b.component_keys[c * b.component_stride + j] == expected);
        REQUIRE(a.values[j * 8 + c] == v[j * 16 + head * 8 + c]);
      }
      mean += half_to_float(a.values[j * 8 + 5]) / 150.0;
    }
    CHECK(a.value_mean[5] == Approx(mean).margin(1e-5));
    CHECK(std::equal(a.value_mean.begin(), a.value_mean.end(), b.value_mean.begin()));
  }
  CHECK_THROWS_AS(one.create(SequenceId{3}), InternalError);
  CHECK_THROWS_AS(one.view(SequenceId{4}, LayerId{0}, KvHead{0}), InternalError);
  one.free(SequenceId{3});
  CHECK_THROWS_AS(one.free(SequenceId{3}), InternalError);
}

}  // namespace test_attention
