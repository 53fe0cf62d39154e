#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "attention_engine/core/attention.h"
#include "attention_engine/core/sparf.h"
#include "base/error.h"
#include "memory_kv_source.h"
#include "reference.h"

namespace test_attention {

using namespace csdsim;
using namespace csdsim::engine;
using namespace csdsim::engine::test;

namespace {

constexpr unsigned kSeed = 7041;

Matrix rows_of(const std::vector<float>& q, std::size_t d) {
  Matrix m(q.size() / d, Row(d));
  for (std::size_t i = 0; i < q.size(); ++i) m[i / d][i % d] = q[i];
  return m;
}

double worst(const std::vector<float>& out, const Matrix& expected) {
  double error = 0;
  const std::size_t d = expected[0].size();
  for (std::size_t i = 0; i < out.size(); ++i) error = std::max(error, std::abs(out[i] - expected[i / d][i % d]));
  return error;
}

std::vector<float> dense(const KvSource& source, const std::vector<float>& q, std::uint32_t group) {
  std::vector<float> out(q.size());
  DenseAttention().attend(source, kHead, q, group, out);
  return out;
}

struct SparfRun {
  SparfAttention head;
  std::vector<float> out;
};

SparfRun sparf(const KvSource& source, const std::vector<float>& q, std::uint32_t group, const SparfParams& params) {
  SparfRun run;
  run.head.select_components(source.view(kHead), params, q, group);
  run.head.score_tokens(source, kHead);
  run.head.select_tokens();
  run.out.resize(q.size());
  run.head.attend(source, kHead, run.out);
  return run;
}

std::vector<std::uint32_t> vec(std::span<const std::uint32_t> s) { return {s.begin(), s.end()}; }
std::vector<float> vec(std::span<const float> s) { return {s.begin(), s.end()}; }

}  // namespace

TEST_CASE("pages in any place and order give the bits of pages that follow one another") {
  // Copies of the pages, somewhere else.
  class Scattered final : public MemoryKvSource {
   public:
    const Half* token_rows(HeadKey key, KvKind kind, std::uint32_t group) const override {
      const KvHeadView v = view(key);
      const std::size_t first = std::size_t{group} * v.tokens_per_page, page = v.tokens_per_page * v.head_dim;
      auto& copy = pages_[{kind, group * 2654435761U}];
      if (!copy) {
        const std::size_t held = std::min<std::size_t>(v.tokens_per_page, v.tokens - first) * v.head_dim;
        copy = std::make_unique<Half[]>(page);
        std::copy_n(MemoryKvSource::token_rows(key, kind, group), held, copy.get());
      }
      return copy.get();
    }

   private:
    mutable std::map<std::pair<KvKind, std::uint32_t>, std::unique_ptr<Half[]>> pages_;
  };
  for (const std::uint32_t tokens : {1U, 16U, 63U, 64U, 65U, 127U, 128U, 500U}) {
    for (const std::uint32_t group : {1U, 4U}) {
      CAPTURE(tokens, group);
      MemoryKvSource together;
      Scattered scattered;
      together.add(kHead, {.tokens = tokens, .head_dim = 128}, kSeed);
      scattered.add(kHead, {.tokens = tokens, .head_dim = 128}, kSeed);
      const auto q = random_query(group * 128, kSeed);
      CHECK(dense(scattered, q, group) == dense(together, q, group));
      if (tokens <= 20) continue;
      const SparfParams params{.r = 16, .k = 20, .l = 5};
      CHECK(sparf(scattered, q, group, params).out == sparf(together, q, group, params).out);
    }
  }
}

TEST_CASE("dense attention equals the definition in double precision") {
  for (std::uint32_t d : {48u, 64u, 128u}) {
    for (std::uint32_t tokens : {1u, 15u, 16u, 17u, 33u, 700u, 1500u}) {
      for (std::uint32_t group : {1u, 3u}) {
        INFO("seed " << kSeed << " d " << d << " S " << tokens << " G " << group);
        MemoryKvSource source;
        source.add(kHead, {.tokens = tokens, .head_dim = d, .page_size = d * 64}, kSeed + tokens);
        const auto q = random_query(group * d, kSeed);
        const Matrix k = matrix(source.keys(kHead), d), v = matrix(source.values(kHead), d);
        Matrix expected;
        for (const Row& row : rows_of(q, d)) expected.push_back(attend(row, k, v, all(tokens)));
        REQUIRE(worst(dense(source, q, group), expected) < 2e-6);
      }
    }
  }
}

TEST_CASE("SparF equals SparQ in double precision, index sets included where keys are apart") {
  const std::uint32_t d = 64, tokens = 700;
  std::uint64_t compared = 0;
  for (unsigned trial = 0; trial < 40; ++trial) {
    for (std::uint32_t group : {1u, 4u}) {
      for (GqaTopk topk : {GqaTopk::sum_logits, GqaTopk::sum_probs}) {
        const SparfParams params{
            .r = 1 + trial * 2, .k = 20 + 10 * trial, .l = trial, .gqa_topk = topk, .reallocate = trial % 5 != 4};
        INFO("seed " << kSeed << " trial " << trial << " G " << group << " r " << params.r << " k " << params.k);
        MemoryKvSource source;
        source.add(kHead, {.tokens = tokens, .head_dim = d, .embedding_group = 8}, kSeed + trial);
        const auto q = random_query(group * d, kSeed + 1000 + trial);
        const SparfRun run = sparf(source, q, group, params);
        const Sparq expected =
            sparq(rows_of(q, d), matrix(source.keys(kHead), d), matrix(source.values(kHead), d), params);
        REQUIRE(vec(run.head.components()) == expected.components);
        if (expected.margin < (topk == GqaTopk::sum_logits ? 1e-4 : 1e-8)) continue;
        ++compared;
        REQUIRE(vec(run.head.tokens()) == expected.tokens);
        for (std::size_t g = 0; g < group && params.reallocate; ++g) {
          REQUIRE(std::abs(run.head.alpha()[g] - expected.alpha[g]) < 1e-5);
        }
        REQUIRE(worst(run.out, expected.out) < 1e-5);
      }
    }
  }
  CHECK(compared > 140);
}

TEST_CASE("output and selection are the same bits whatever the page size, groups, windows and tail") {
  const std::uint32_t d = 64, tokens = 1500, group = 2;
  const SparfParams params{.r = 12, .k = 180, .l = 45};
  const auto q = random_query(group * d, kSeed);
  MemoryKvSource plain;
  plain.add(kHead, {.tokens = tokens, .head_dim = d, .page_size = 4096, .embedding_group = 2}, kSeed);
  const SparfRun expected = sparf(plain, q, group, params);
  const auto expected_dense = dense(plain, q, group);
  for (std::uint32_t page_size : {512u, 2048u, 4096u, 16384u, 65536u}) {
    for (std::uint32_t m : {1u, 2u, 4u, 8u, 16u}) {
      for (TailScoring tail : {TailScoring::token_pages, TailScoring::dram}) {
        INFO("seed " << kSeed << " P " << page_size << " m " << m);
        MemoryKvSource source;
        source.add(kHead, {.tokens = tokens, .head_dim = d, .page_size = page_size, .embedding_group = m, .tail = tail},
                   kSeed);
        const SparfRun run = sparf(source, q, group, params);
        REQUIRE(vec(run.head.logits()) == vec(expected.head.logits()));
        REQUIRE(vec(run.head.tokens()) == vec(expected.head.tokens()));
        REQUIRE(run.out == expected.out);
        REQUIRE(dense(source, q, group) == expected_dense);
      }
    }
  }
}

TEST_CASE("r = d gives the exact probabilities and tau = sqrt(d)") {
  const std::uint32_t d = 64, tokens = 600;
  MemoryKvSource source;
  source.add(kHead, {.tokens = tokens, .head_dim = d}, kSeed);
  const auto q = random_query(d, kSeed);
  const SparfRun run = sparf(source, q, 1, {.r = 500, .k = tokens - 1, .l = 0});
  CHECK(run.head.components().size() == d);
  CHECK(run.head.tau()[0] == std::sqrt(64.0f));
  // All tokens but the least probable one: the difference to dense attention is bounded by its probability.
  const auto expected = dense(source, q, 1);
  const double rest = 1.0 - run.head.alpha()[0];
  double error = 0;
  for (std::size_t i = 0; i < d; ++i) error = std::max(error, double(std::abs(run.out[i] - expected[i])));
  CHECK(error < 10 * rest + 1e-5);
  CHECK(rest < 1e-4);
}

TEST_CASE("equal rows of V come out whatever is selected") {
  const std::uint32_t d = 64, tokens = 500;
  MemoryKvSource source;
  source.add(kHead, {.tokens = tokens, .head_dim = d}, kSeed);
  auto& v = source.values(kHead);
  for (std::size_t i = d; i < v.size(); ++i) v[i] = v[i - d];
  source.refresh(kHead);
  const auto q = random_query(d, kSeed);
  for (std::uint32_t k : {1u, 17u, 400u}) {
    const SparfRun run = sparf(source, q, 1, {.r = 8, .k = k, .l = 0});
    for (std::size_t i = 0; i < d; ++i) REQUIRE(std::abs(run.out[i] - half_to_float(v[i])) < 1e-5);
  }
}

TEST_CASE("alpha lies in (0, 1] and does not fall as k grows") {
  const std::uint32_t d = 64, tokens = 400;
  MemoryKvSource source;
  source.add(kHead, {.tokens = tokens, .head_dim = d}, kSeed);
  const auto q = random_query(d, kSeed);
  float before = 0;
  for (std::uint32_t k = 1; k < tokens; ++k) {
    const float alpha = sparf(source, q, 1, {.r = 16, .k = k, .l = 0}).head.alpha()[0];
    REQUIRE(alpha > 0);
    REQUIRE(alpha <= 1);
    REQUIRE(alpha >= before - 1e-6f);
    before = alpha;
  }
}

TEST_CASE("edge cases of SparF") {
  const std::uint32_t d = 64, tokens = 300;
  MemoryKvSource source;
  source.add(kHead, {.tokens = tokens, .head_dim = d}, kSeed);
  const auto q = random_query(d, kSeed);

  SECTION("l >= k keeps the newest k tokens") {
    const SparfRun run = sparf(source, q, 1, {.r = 8, .k = 50, .l = 200});
    std::vector<std::uint32_t> newest(50);
    std::iota(newest.begin(), newest.end(), tokens - 50);
    CHECK(vec(run.head.tokens()) == newest);
  }
  SECTION("q = 0: uniform probabilities, ties to the lower index, tau = sqrt(d)") {
    const SparfRun run = sparf(source, std::vector<float>(d), 1, {.r = 8, .k = 50, .l = 10});
    CHECK(run.head.tau()[0] == 8.0f);
    CHECK(vec(run.head.components()) == all(8));
    std::vector<std::uint32_t> expected = all(40);
    for (std::uint32_t j = tokens - 10; j < tokens; ++j) expected.push_back(j);
    CHECK(vec(run.head.tokens()) == expected);
    CHECK(run.head.alpha()[0] == Approx(50.0 / 300.0));
  }
  SECTION("a query head that is 0 on I stays finite") {
    std::vector<float> two(2 * d);
    for (std::size_t i = 0; i < 8; ++i) two[i] = 10;
    for (std::size_t i = 8; i < d; ++i) two[d + i] = 0.01f;
    const SparfParams params{.r = 8, .k = 50, .l = 10, .gqa_topk = GqaTopk::sum_logits};
    const SparfRun run = sparf(source, two, 2, params);
    for (float x : run.out) REQUIRE(std::isfinite(x));
    // Its logits are 0, so that the other head alone decides.
    CHECK(run.head.tau()[1] == 8.0f);
    CHECK(vec(run.head.tokens()) == vec(sparf(source, {two.begin(), two.begin() + d}, 1, params).head.tokens()));
  }
  SECTION("invalid parameters are refused") {
    CHECK_THROWS_AS(sparf(source, q, 1, {.r = 0, .k = 50, .l = 1}), InternalError);
    CHECK_THROWS_AS(sparf(source, q, 1, {.r = 8, .k = 0, .l = 1}), InternalError);
    CHECK_THROWS_AS(sparf(source, q, 1, {.r = 8, .k = tokens, .l = 1}), InternalError);
  }
  SECTION("NaN and infinities in the cache do no harm beyond the output") {
    auto& k = source.keys(kHead);
    for (std::size_t i = 0; i < k.size(); i += 3) k[i] = i % 2 == 0 ? Half{0x7E00} : Half{0x7C00};
    source.refresh(kHead);
    const SparfRun run = sparf(source, q, 1, {.r = 8, .k = 50, .l = 10});
    CHECK(run.head.tokens().size() == 50);
    CHECK(run.head.tokens().back() == tokens - 1);
  }
}

TEST_CASE("logits of -inf give zero, not NaN") {
  const std::uint32_t d = 64;
  MemoryKvSource source;
  source.add(kHead, {.tokens = 20, .head_dim = d}, kSeed);
  std::fill(source.keys(kHead).begin(), source.keys(kHead).end(), Half{0xFC00});
  const std::vector<float> q(d, 1.0f);
  for (float x : dense(source, q, 1)) REQUIRE(x == 0.0f);
}

TEST_CASE("pages of both phases are those of steps A and B in docs/algorithms.md") {
  const std::uint32_t d = 128, tokens = 1536 + 40 * 16 + 5, m = 8;  // T = 256: 8 windows, 8 more groups and 5 tokens
  MemoryKvSource source;
  source.add(kHead, {.tokens = tokens, .head_dim = d, .embedding_group = m}, kSeed);
  const SparfRun run = sparf(source, random_query(d, kSeed), 1, {.r = 16, .k = 200, .l = 50});
  std::set<std::uint32_t> e, u;
  for (auto i : run.head.components()) e.insert(i / m);
  for (auto j : run.head.tokens()) {
    if (j < tokens / 16 * 16) u.insert(j / 16);
  }
  CHECK(run.head.embedding_groups().groups == std::vector<std::uint32_t>(e.begin(), e.end()));
  CHECK(run.head.token_groups().groups == std::vector<std::uint32_t>(u.begin(), u.end()));
  const auto& rows = run.head.token_groups().rows;
  CHECK(std::accumulate(rows.begin(), rows.end(), 0u) == 195);  // 5 of the 200 are in DRAM
  const auto& runs = run.head.embedding_groups().rows;
  CHECK(std::accumulate(runs.begin(), runs.end(), 0u) == 16);
}

TEST_CASE("scores of each query head; fetch copies rows") {
  const std::uint32_t d = 64, tokens = 100, group = 2;
  MemoryKvSource source;
  source.add(kHead, {.tokens = tokens, .head_dim = d}, kSeed);
  const auto q = random_query(group * d, kSeed);
  std::vector<float> scores(group * tokens);
  score_head(source, kHead, ScorePrecision::fp16, q, group, 0, tokens, scores);
  const Matrix k = matrix(source.keys(kHead), d), rows = rows_of(q, d);
  for (std::size_t g = 0; g < group; ++g)
    for (std::size_t j = 0; j < tokens; ++j)
      REQUIRE(std::abs(scores[g * tokens + j] - test::dot(rows[g], k[j])) < 1e-4);
  // A part of the tokens has the same scores, wherever it begins and ends, in every precision.
  for (const ScorePrecision precision : {ScorePrecision::fp16, ScorePrecision::int8, ScorePrecision::int4}) {
    score_head(source, kHead, precision, q, group, 0, tokens, scores);
    for (std::uint32_t first = 0; first < tokens; first += 7)
      for (const std::uint32_t end : {first + 1, (first + tokens + 1) / 2, tokens}) {
        std::vector<float> part(group * (end - first));
        score_head(source, kHead, precision, q, group, first, end, part);
        for (std::size_t g = 0; g < group; ++g)
          REQUIRE(std::equal(part.begin() + static_cast<std::ptrdiff_t>(g * (end - first)),
                             part.begin() + static_cast<std::ptrdiff_t>((g + 1) * (end - first)),
                             scores.begin() + static_cast<std::ptrdiff_t>(g * tokens + first)));
      }
  }
  CHECK_THROWS_AS(score_head(source, kHead, ScorePrecision::fp16, q, group, 1, tokens + 1, scores), InternalError);
  CHECK_THROWS_AS(score_head(source, kHead, ScorePrecision::fp16, q, group, 3, 3, {}), InternalError);
  const std::vector<std::uint32_t> wanted{99, 0, 31, 32};
  std::vector<Half> out(wanted.size() * d);
  fetch_rows(source, kHead, KvKind::value, wanted, out);
  for (std::size_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == source.values(kHead)[wanted[i / d] * d + i % d]);
  CHECK_THROWS_AS(fetch_rows(source, kHead, KvKind::key, std::vector<std::uint32_t>{100}, std::span(out).first(d)),
                  InternalError);
}

TEST_CASE("top-k is ordered by key, then index, with -0 = +0 and NaN last") {
  TopK top_k;
  std::vector<std::uint32_t> out;
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> keys{-1, nan, 0.0f, -0.0f, inf, -inf, 2, 2, 2};
  const std::vector<std::uint32_t> order{4, 6, 7, 8, 2, 3, 0, 5, 1};
  for (std::uint32_t k = 0; k <= 12; ++k) {
    top_k.select(keys, k, out);
    auto expected = std::vector<std::uint32_t>(order.begin(), order.begin() + std::min<std::ptrdiff_t>(k, 9));
    std::sort(expected.begin(), expected.end());
    REQUIRE(out == expected);
  }
}

TEST_CASE("m and z of dense attention: the largest scaled logit, and the sum of exponentials that o is divided by") {
  for (const std::uint32_t tokens : {1U, 31U, 32U, 33U, 200U}) {
    const std::uint32_t group = 3, d = 64;
    MemoryKvSource source;
    source.add(kHead, {.tokens = tokens, .head_dim = d}, kSeed + tokens);
    const std::vector<float> q = random_query(std::size_t{group} * d, kSeed);
    std::vector<float> out(q.size());
    std::vector<SoftmaxSums> sums(group);
    DenseAttention().attend(source, kHead, q, group, out, sums);
    CHECK(out == dense(source, q, group));
    const Matrix k = matrix(source.keys(kHead), d);
    for (std::uint32_t g = 0; g < group; ++g) {
      Row logits;
      for (const Row& row : k) logits.push_back(dot(rows_of(q, d)[g], row) / 8);
      const double most = *std::max_element(logits.begin(), logits.end());
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit - most);
      CHECK(sums[g].most == Approx(most).epsilon(1e-5));
      CHECK(sums[g].sum == Approx(sum).epsilon(1e-5));
    }
  }
}

TEST_CASE("without a finite logit m is -inf and z is 0, so that the output merges as that of no tokens") {
  MemoryKvSource source;
  source.add(kHead, {.tokens = 40}, kSeed);
  std::fill(source.keys(kHead).begin(), source.keys(kHead).end(), float_to_half(-1e30f));
  source.refresh(kHead);
  const std::vector<float> q(64, 1.0f);
  std::vector<float> out(64, 1.0f);
  std::vector<SoftmaxSums> sums(1);
  DenseAttention().attend(source, kHead, q, 1, out, sums);
  CHECK(sums[0].most == -std::numeric_limits<float>::infinity());
  CHECK(sums[0].sum == 0.0f);
  CHECK(out == std::vector<float>(64));
  sums.resize(2);
  CHECK_THROWS_AS(DenseAttention().attend(source, kHead, q, 1, out, sums), InternalError);
}

}  // namespace test_attention
