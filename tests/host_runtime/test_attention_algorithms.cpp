// Each method of attention against a straightforward reference of its own.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/simd.h"
#include "host_runtime/core/attention/attention_chunks.h"
#include "host_runtime/core/attention/attention_h2o.h"
#include "host_runtime/core/attention/attention_importance.h"
#include "host_runtime/core/attention/attention_infinigen.h"
#include "host_runtime/core/attention/attention_local.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "tests/host_runtime/method_checks.h"

namespace test_attention_algorithms {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;
using test::best_and_current;
using test::Decoding;
using test::LayerShape;
using test::RandomLayers;
using test::raw_logits;
using test::Rows;
using test::shape_of;
using Tokens = std::vector<std::uint32_t>;

TEST_CASE("H2O follows its definition step by step") {
  const std::string_view rank = GENERATE("h2o", "h2o-mean", "h2o-decoded");
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const LayerShape shape = shape_of(seed);
    const std::uint32_t heavy = seed % 5 * 3, recent = 1 + seed % 4 * 2, prompt = 10 + seed * 3;
    INFO(rank << " seed " << seed << " heavy " << heavy << " recent " << recent << " prompt " << prompt);
    Decoding d(shape, configure_method(rank, {.heavy = heavy, .recent = recent}, shape.head_dim).method);
    RandomLayers random(shape, seed);
    const Rows p = random.rows(prompt);
    d.prompt(p, prompt);

    // Weights of all tokens from the definition; a kept set a head.
    std::vector<std::vector<double>> acc(shape.kv_heads, std::vector<double>(prompt, 0.0));
    std::vector<std::set<std::uint32_t>> kept(shape.kv_heads);
    const std::size_t width = shape.kv_heads * shape.group * shape.head_dim;
    const auto view = [&](std::uint32_t head) {
      return d.attention.cache().view(SequenceId{0}, LayerId{0}, KvHead{head});
    };
    const auto weigh = [&](std::uint32_t head, const float* q, const Tokens& tokens) {
      const KvView kv = view(head);
      for (std::uint32_t g = 0; g < shape.group; ++g) {
        std::vector<double> logits;
        for (const auto j : tokens) {
          double dot = 0;
          for (std::uint32_t i = 0; i < shape.head_dim; ++i) {
            dot += q[(head * shape.group + g) * shape.head_dim + i] * test::key(kv, j, i);
          }
          logits.push_back(dot / std::sqrt(static_cast<double>(shape.head_dim)));
        }
        const auto weights = test::softmax(logits);
        for (std::size_t n = 0; n < tokens.size(); ++n) acc[head][tokens[n]] += weights[n];
      }
    };
    const auto evict = [&](std::uint32_t head, std::uint32_t s) {
      while (kept[head].size() > heavy + recent) {
        std::uint32_t victim = 0;
        double least = 1e300;
        for (const auto j : kept[head]) {
          // Queries that could see j: its own and all after it.
          const double merit = rank == "h2o-mean" ? acc[head][j] / (s - j) : acc[head][j];
          if (j + recent < s && merit < least) {
            least = merit;
            victim = j;
          }
        }
        kept[head].erase(victim);
      }
    };
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
      Tokens visible;
      for (std::uint32_t t = 0; t < prompt; ++t) {
        visible.push_back(t);
        if (rank != "h2o-decoded") weigh(head, p.q.data() + t * width, visible);
        kept[head].insert(t);
      }
      evict(head, prompt);
    }
    for (std::uint32_t s = prompt + 1; s < prompt + 30; ++s) {
      const Rows r = random.rows(1);
      const auto out = d.step(r);
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        kept[head].insert(s - 1);
        acc[head].push_back(0);
        const Tokens tokens(kept[head].begin(), kept[head].end());
        REQUIRE(d.tokens(head) == tokens);
        weigh(head, r.q.data(), tokens);
        evict(head, s);
      }
      check_output(out, r, d, shape);
    }
  }
}

TEST_CASE("H2O without heavy hitters is a window that the new token comes on top of") {
  const LayerShape shape{};
  RandomLayers random(shape, 9);
  Decoding h2o(shape, configure_method("h2o", {.heavy = 0, .recent = 6}, 32).method);
  Decoding local(shape, configure_method("local", {.window = 7}, 32).method);
  const Rows prompt = random.rows(50);
  h2o.prompt(prompt, 50);
  local.prompt(prompt, 50);
  for (int i = 0; i < 20; ++i) {
    const Rows r = random.rows(1);
    CHECK(h2o.step(r) == local.step(r));
  }
}

TEST_CASE("chunk bounds hold, and with chunks of one token the best tokens are found") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const LayerShape shape = shape_of(seed);
    INFO("seed " << seed);
    RandomLayers random(shape, seed);
    Decoding exact(shape, std::make_unique<ChunkAttention>(ChunkOptions{.tokens = 12, .chunk = 32, .leaf = 1}));
    const Rows prompt = random.rows(90 + seed);
    exact.prompt(prompt, 90 + seed);
    const Rows r = random.rows(1);
    exact.step(r);
    const std::size_t size = shape.group * shape.head_dim, d = shape.head_dim;
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
      const KvView kv = exact.attention.cache().view(SequenceId{0}, LayerId{0}, KvHead{head});
      const auto q = std::span(r.q).subspan(head * size, size);
      const auto logits = raw_logits(q, kv);
      CHECK(exact.tokens(head) == best_and_current(logits, 12));
      // Splitting reads fewer bounds than there are tokens, twice over at most.
      CHECK(exact.selections[head].elements <= 2 * d * (2 * kv.tokens + 12));
      for (std::size_t first = 0; first + 16 <= kv.tokens; first += 16) {
        std::vector<float> least(d, 1e30f), largest(d, -1e30f);
        for (std::size_t j = first; j < first + 16; ++j) {
          for (std::size_t i = 0; i < d; ++i) {
            least[i] = std::min(least[i], half_to_float(kv.keys[j * d + i]));
            largest[i] = std::max(largest[i], half_to_float(kv.keys[j * d + i]));
          }
        }
        const ChunkBounds bounds = chunk_bounds(q, least.data(), largest.data(), d);
        for (std::size_t j = first; j < first + 16; ++j) {
          CHECK(bounds.upper >= logits[j] - 1e-4);
          CHECK(bounds.lower <= logits[j] + 1e-4);
        }
      }
    }
  }
}

TEST_CASE("chunks of one size: whole chunks by their upper bound") {
  const LayerShape shape{.kv_heads = 1};
  RandomLayers random(shape, 21);
  Decoding d(shape, std::make_unique<ChunkAttention>(ChunkOptions{.tokens = 1 + 3 * 8, .chunk = 8, .leaf = 8}));
  d.prompt(random.rows(160), 160);
  const Rows r = random.rows(1);
  d.step(r);
  const KvView kv = d.attention.cache().view(SequenceId{0}, LayerId{0}, KvHead{0});
  std::vector<float> upper;
  for (std::size_t c = 0; c < 20; ++c) {
    double sum = 0;
    for (std::size_t i = 0; i < 32; ++i) {
      double best = -1e30;
      for (std::size_t j = c * 8; j < c * 8 + 8; ++j) best = std::max(best, r.q[i] * test::key(kv, j, i));
      sum += best;
    }
    upper.push_back(static_cast<float>(sum));
  }
  Tokens expected;
  for (const auto c : top_indices(upper, 3)) {
    for (std::uint32_t j = 0; j < 8; ++j) expected.push_back(c * 8 + j);
  }
  expected.push_back(160);
  CHECK(d.tokens() == expected);
  CHECK(d.selections[0].elements == 2 * 32 * (20 + 25));  // 20 bounds examined, 25 tokens attended to
}

TEST_CASE("importance of any precision equals its definition, and the exact order where rounding cannot matter") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const LayerShape shape = shape_of(seed);
    INFO("seed " << seed);
    for (const std::uint32_t bits : {16U, 8U, 4U}) {
      for (const ScoreAggregate aggregate :
           {ScoreAggregate::sum_raw, ScoreAggregate::max_raw, ScoreAggregate::per_head}) {
        RandomLayers random(shape, seed);
        Decoding d(shape, std::make_unique<ImportanceAttention>(
                              ImportanceOptions{.tokens = 20, .bits = bits, .aggregate = aggregate}));
        d.prompt(random.rows(80), 80);
        d.step(random.rows(1));
        const Rows r = random.rows(1);
        d.step(r);
        const std::size_t dim = shape.head_dim, steps = bits == 8 ? 127 : 7;
        std::vector<std::vector<double>> heads, exact;
        for (std::uint32_t h = 0; h < shape.kv_heads * shape.group; ++h) {
          const KvView kv = d.attention.cache().view(SequenceId{0}, LayerId{0}, KvHead{h / shape.group});
          float q_max = 0;
          for (std::size_t i = 0; i < dim; ++i) q_max = std::max(q_max, std::abs(r.q[h * dim + i]));
          const float sq = q_max / 127.0f;
          std::vector<double> scores, exact_scores;
          for (std::size_t j = 0; j < kv.tokens; ++j) {
            double product = 0;
            for (std::size_t i = 0; i < dim; ++i)
              product += double{r.q[h * dim + i]} * half_to_float(kv.keys[j * dim + i]);
            exact_scores.push_back(product);
            float k_max = 0;
            for (std::size_t i = 0; i < dim; ++i)
              k_max = std::max(k_max, std::abs(half_to_float(kv.keys[j * dim + i])));
            const float sk = k_max / static_cast<float>(steps);
            double sum = 0;
            for (std::size_t i = 0; i < dim; ++i) {
              sum += std::nearbyint(r.q[h * dim + i] / sq) * std::nearbyint(half_to_float(kv.keys[j * dim + i]) / sk);
            }
            scores.push_back(sum * sq * sk);
          }
          heads.push_back(bits == 16 ? exact_scores : scores);
          exact.push_back(exact_scores);
        }
        const auto combine = [&](const std::vector<std::vector<double>>& of, std::size_t first, std::size_t count,
                                 bool max) {
          std::vector<double> all = of[first];
          for (std::size_t h = first + 1; h < first + count; ++h) {
            for (std::size_t j = 0; j < all.size(); ++j) all[j] = max ? std::max(all[j], of[h][j]) : all[j] + of[h][j];
          }
          return all;
        };
        for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
          const auto importance = [&](const std::vector<std::vector<double>>& of) {
            return aggregate == ScoreAggregate::per_head
                       ? combine(of, head * shape.group, shape.group, false)
                       : combine(of, 0, of.size(), aggregate == ScoreAggregate::max_raw);
          };
          CHECK(d.tokens(head) == best_and_current(importance(heads), 20));
          CHECK(d.selections[head].recall.has_value() == (bits != 16));
          if (bits == 16) continue;
          // The current token is in both.
          const Tokens chosen = d.tokens(head), best = best_and_current(importance(exact), 20);
          Tokens both;
          std::set_intersection(chosen.begin(), chosen.end(), best.begin(), best.end(), std::back_inserter(both));
          CHECK(*d.selections[head].recall == Approx((static_cast<double>(both.size()) - 1) / 19));
        }
      }
    }
  }
  std::vector<std::int8_t> steps(5);
  CHECK(quantise(std::vector<float>{-127, 2.5f, 3.5f, 127, 0.4f}, 127, steps) == 1.0f);
  CHECK(steps == std::vector<std::int8_t>{-127, 2, 4, 127, 0});  // halves to even
  CHECK(quantise(std::vector<float>(5, 0.0f), 7, steps) == 0.0f);
  CHECK(steps == std::vector<std::int8_t>(5, 0));
}

TEST_CASE("eigenvectors diagonalise and are orthonormal") {
  std::mt19937 rng(5);
  for (const std::size_t n : {1U, 2U, 7U, 40U}) {
    std::vector<double> a(n * n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j <= i; ++j) a[i * n + j] = a[j * n + i] = static_cast<double>(rng() % 2001) / 1000.0 - 1;
    }
    const auto v = symmetric_eigenvectors(a, n);
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = 0; q < n; ++q) {
        double dot = 0, form = 0;
        for (std::size_t i = 0; i < n; ++i) {
          dot += v[p * n + i] * v[q * n + i];
          for (std::size_t j = 0; j < n; ++j) form += v[p * n + i] * a[i * n + j] * v[q * n + j];
        }
        CHECK(dot == Approx(p == q ? 1 : 0).margin(1e-10));
        if (p != q) CHECK(form == Approx(0).margin(1e-9));
      }
    }
  }
}

TEST_CASE("InfiniGen with all columns and a true speculation fetches the best tokens") {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    const LayerShape shape = shape_of(seed);
    INFO("seed " << seed);
    RandomLayers random(shape, seed);
    const InfinigenOptions options{.partial = {1, 1}, .threshold = 1e30f, .tokens = 15, .dense_layers = 0};
    Decoding d(shape, std::make_unique<InfinigenAttention>(options));
    d.prompt(random.rows(100), 100);
    const SequenceId sequence{0};
    for (int i = 0; i < 5; ++i) {
      const Rows r = random.rows(1);
      d.attention.speculate(LayerId{0}, {&sequence, 1}, r.q);
      const auto out = d.step(r);
      const std::size_t size = shape.group * shape.head_dim;
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        const KvView kv = d.attention.cache().view(SequenceId{0}, LayerId{0}, KvHead{head});
        CHECK(d.tokens(head) == best_and_current(raw_logits(std::span(r.q).subspan(head * size, size), kv), 15));
      }
      check_output(out, r, d, shape);
    }
  }
}

TEST_CASE("InfiniGen fetches n' tokens for every head: the mean of how many come near the best") {
  const LayerShape shape{.kv_heads = 3, .group = 2, .head_dim = 32, .layers = 3};
  RandomLayers random(shape, 31);
  const InfinigenOptions options{.partial = {1, 1}, .threshold = 4, .tokens = 1000, .dense_layers = 2};
  Decoding d(shape, std::make_unique<InfinigenAttention>(options));
  const SequenceId sequence{0};
  for (std::uint32_t layer = 0; layer < 3; ++layer) d.prompt(random.rows(120), 120, LayerId{layer});
  const Rows r = random.rows(1);
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    d.attention.speculate(LayerId{layer}, {&sequence, 1}, r.q);
    d.step(r, LayerId{layer});
    if (layer < 2) CHECK(d.tokens().size() == 121);
  }
  std::size_t within = 0;
  for (std::uint32_t head = 0; head < 3; ++head) {
    const KvView kv = d.attention.cache().view(SequenceId{0}, LayerId{2}, KvHead{head});
    auto logits = raw_logits(std::span(r.q).subspan(head * 64, 64), kv);
    logits.pop_back();
    for (double& x : logits) x /= std::sqrt(32.0);
    const double best = *std::max_element(logits.begin(), logits.end());
    within +=
        static_cast<std::size_t>(std::count_if(logits.begin(), logits.end(), [&](double x) { return x > best - 4; }));
  }
  CHECK(within / 3 < 119);
  for (std::uint32_t head = 0; head < 3; ++head) CHECK(d.tokens(head).size() == within / 3 + 1);
}

}  // namespace test_attention_algorithms
