#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/simd.h"
#include "base/simd_dispatch.h"

namespace test_simd {

using namespace csdsim;

namespace {

constexpr unsigned kSeed = 20240607;

std::vector<Half> random_halves(std::size_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<Half> out(n);
  for (Half& h : out) h = float_to_half(normal(rng));
  return out;
}

std::vector<float> random_floats(std::size_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& f : out) f = normal(rng);
  return out;
}

/// Runs `check` once with every instruction set of this machine.
template <class F>
void on_every_target(F check) {
  for (auto bits = simd::machine_targets(); bits != 0; bits &= bits - 1) {
    simd::use_targets(bits & -bits);
    INFO("target " << simd::target_name() << " seed " << kSeed);
    check();
  }
  simd::use_targets(0);
}

const std::vector<std::size_t> kDims{1, 3, 15, 16, 17, 32, 64, 80, 100, 128, 256};

}  // namespace

TEST_CASE("dot and gemv_rows agree with double precision and, bit for bit, with each other") {
  on_every_target([] {
    std::mt19937 rng(kSeed);
    for (std::size_t d : kDims) {
      const std::size_t n = 29;
      const auto q = random_floats(d, rng);
      const auto rows = random_halves(n * d, rng);
      std::vector<float> scores(n);
      simd::gemv_rows(q.data(), rows.data(), n, d, scores.data());
      std::vector<float> with_ahead(n);
      const simd::Ahead ahead{{rows.data(), rows.data(), rows.data(), rows.data()}};
      simd::gemv_rows(q.data(), rows.data(), n, d, with_ahead.data(), &ahead);
      REQUIRE(with_ahead == scores);
      for (std::size_t j = 0; j < n; ++j) {
        double expected = 0, scale = 0;
        for (std::size_t i = 0; i < d; ++i) {
          const double term = double{q[i]} * half_to_float(rows[j * d + i]);
          expected += term;
          scale += std::abs(term);
        }
        REQUIRE(std::abs(scores[j] - expected) <= 1e-6 * scale);
        REQUIRE(simd::dot(q.data(), rows.data() + j * d, d) == scores[j]);
      }
    }
  });
}

TEST_CASE("accumulate_rows agrees with double precision and, bit for bit, with axpy row by row and with any cut") {
  on_every_target([] {
    std::mt19937 rng(kSeed);
    for (std::size_t d : kDims) {
      const std::size_t n = 300;  // more than one cache block at d >= 64
      const auto w = random_floats(n, rng);
      const auto rows = random_halves(n * d, rng);
      const auto start = random_floats(d, rng);
      auto at_once = start, by_row = start, in_cuts = start;
      simd::accumulate_rows(w.data(), rows.data(), n, d, at_once.data());
      for (std::size_t j = 0; j < n; ++j) simd::axpy(w[j], rows.data() + j * d, by_row.data(), d);
      const simd::Ahead ahead{{rows.data(), rows.data(), rows.data(), rows.data()}};
      simd::accumulate_rows(w.data(), rows.data(), 13, d, in_cuts.data());
      simd::accumulate_rows(w.data() + 13, rows.data() + 13 * d, n - 13, d, in_cuts.data(), &ahead);
      REQUIRE(at_once == by_row);
      REQUIRE(at_once == in_cuts);
      for (std::size_t i = 0; i < d; ++i) {
        double expected = start[i], scale = std::abs(expected);
        for (std::size_t j = 0; j < n; ++j) {
          const double term = double{w[j]} * half_to_float(rows[j * d + i]);
          expected += term;
          scale += std::abs(term);
        }
        REQUIRE(std::abs(at_once[i] - expected) <= 1e-5 * scale);
      }
    }
  });
}

TEST_CASE("groups of queries get the bits of a call a query, with memory ahead named or not") {
  on_every_target([] {
    std::mt19937 rng(kSeed);
    for (std::size_t d : kDims) {
      for (std::size_t group : {1, 2, 4, 5, 7, 8}) {
        const std::size_t n = 270, stride = n + 3;
        const auto q = random_floats(group * d, rng), weights = random_floats(group * stride, rng);
        const auto start = random_floats(group * d, rng);
        const auto rows = random_halves(n * d, rng);
        std::vector<float> expected(group * stride), out = start;
        for (std::size_t g = 0; g < group; ++g) {
          simd::gemv_rows(q.data() + g * d, rows.data(), n, d, expected.data() + g * stride);
          simd::accumulate_rows(weights.data() + g * stride, rows.data(), n, d, out.data() + g * d);
        }
        const simd::Ahead same{{rows.data(), rows.data(), rows.data(), rows.data()}};
        for (const simd::Ahead* ahead : {static_cast<const simd::Ahead*>(nullptr), &same}) {
          std::vector<float> scores(group * stride), together = start;
          simd::gemv_rows_group(q.data(), group, rows.data(), n, d, scores.data(), stride, ahead);
          REQUIRE(scores == expected);
          simd::accumulate_rows_group(weights.data(), stride, group, rows.data(), n, d, together.data(), ahead);
          REQUIRE(together == out);
        }
      }
    }
  });
}

TEST_CASE("results do not depend on alignment") {
  on_every_target([] {
    std::mt19937 rng(kSeed);
    const std::size_t d = 100, n = 9;
    const auto q = random_floats(d, rng);
    const auto rows = random_halves(n * d, rng);
    std::vector<float> expected(n);
    simd::gemv_rows(q.data(), rows.data(), n, d, expected.data());
    for (std::size_t shift = 1; shift < 32; ++shift) {
      std::vector<float> q_shifted(d + shift), scores(n);
      std::vector<Half> rows_shifted(n * d + shift);
      std::copy(q.begin(), q.end(), q_shifted.begin() + static_cast<std::ptrdiff_t>(shift));
      std::copy(rows.begin(), rows.end(), rows_shifted.begin() + static_cast<std::ptrdiff_t>(shift));
      simd::gemv_rows(q_shifted.data() + shift, rows_shifted.data() + shift, n, d, scores.data());
      REQUIRE(scores == expected);
    }
  });
}

TEST_CASE("widen and narrow equal the scalar conversions") {
  on_every_target([] {
    std::vector<Half> all;
    for (std::uint32_t h = 0; h <= 0xFFFF; ++h) {
      if ((h & 0x7FFFu) <= 0x7C00u) all.push_back(static_cast<Half>(h));
    }
    std::vector<float> wide(all.size());
    simd::widen(all.data(), wide.data(), all.size());
    std::vector<float> around;
    for (std::size_t i = 0; i < all.size(); ++i) {
      REQUIRE(wide[i] == half_to_float(all[i]));
      const float next = half_to_float(static_cast<Half>(all[i] + 1));
      if (std::isinf(wide[i]) || std::isinf(next)) continue;
      const float mid = wide[i] + (next - wide[i]) / 2;
      for (float f : {std::nextafter(mid, -1e9f), mid, std::nextafter(mid, 1e9f)}) around.push_back(f);
    }
    for (float f : {65519.99f, 65520.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
      around.insert(around.end(), {f, -f});
    }
    std::vector<Half> narrow(around.size());
    simd::narrow(around.data(), narrow.data(), around.size());
    for (std::size_t i = 0; i < around.size(); ++i) REQUIRE(narrow[i] == float_to_half(around[i]));
  });
}

TEST_CASE("a product with a matrix of 16 bits has the bits of gemv_rows, whatever the instruction set") {
  on_every_target([] {
    std::mt19937 rng(kSeed);
    for (const std::size_t d : {1, 31, 64, 100, 256, 2051}) {
      for (const std::size_t n : {1, 7, 8, 16, 29}) {
        const auto x = random_floats(d, rng);
        const auto halves = random_halves(n * d, rng);
        std::vector<float> expected(n), found(n);
        simd::gemv_rows(x.data(), halves.data(), n, d, expected.data());
        simd::matrix_vector(x.data(), halves.data(), n, d, found.data());
        REQUIRE(found == expected);

        std::vector<Bf16> brains;
        for (const Half h : halves) brains.push_back(static_cast<Bf16>(h));  // any bits but those of NaN
        for (Bf16& b : brains)
          if (!std::isfinite(to_float(b)) || std::abs(to_float(b)) > 1e3f) b = static_cast<Bf16>(0x3F80);
        std::vector<float> wide(brains.size());
        simd::widen(brains.data(), wide.data(), wide.size());
        for (std::size_t i = 0; i < wide.size(); ++i) REQUIRE(wide[i] == to_float(brains[i]));
        simd::matrix_vector(x.data(), brains.data(), n, d, found.data());
        for (std::size_t j = 0; j < n; ++j) {
          double sum = 0, size = 0;
          for (std::size_t i = 0; i < d; ++i) {
            const double term = double{x[i]} * double{wide[j * d + i]};
            sum += term, size += std::abs(term);
          }
          REQUIRE(std::abs(found[j] - sum) <= 1e-5 * size);
        }
      }
    }
  });
}

TEST_CASE("exp_shifted agrees with the library and sends -inf to zero") {
  on_every_target([] {
    std::mt19937 rng(kSeed);
    for (std::size_t n : {1, 7, 16, 33, 1000}) {
      auto x = random_floats(n, rng);
      x[n / 2] = -std::numeric_limits<float>::infinity();
      const auto before = x;
      REQUIRE(simd::max_value(x.data(), n) == *std::max_element(x.begin(), x.end()));
      const float sum = simd::exp_shifted(x.data(), n, 3.0f);
      double expected_sum = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double expected = std::exp(double{before[i]} - 3.0);
        expected_sum += expected;
        REQUIRE(std::abs(x[i] - expected) <= 1e-6 * expected);
      }
      REQUIRE(x[n / 2] == 0.0f);
      REQUIRE(std::abs(sum - expected_sum) <= 1e-5 * expected_sum);
    }
  });
}

TEST_CASE("functions are compiled for the best instruction set of the machine, unless a test takes another") {
  const auto name_of = [](std::int64_t targets) { return std::string(hwy::TargetName(targets & -targets)); };
  CHECK(simd::target_name() == name_of(simd::machine_targets()));
  std::size_t targets = 0;
  for (auto bits = simd::machine_targets(); bits != 0; bits &= bits - 1, ++targets) {
    simd::use_targets(bits);
    CHECK(simd::target_name() == name_of(bits));
  }
  simd::use_targets(0);
#if HWY_ARCH_X86
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line) && !line.starts_with("flags")) {
  }
  const auto has = [words = line + " "](const std::string& flag) { return words.find(" " + flag + " ") != words.npos; };
  const bool ssse3 = has("ssse3"), sse4 = ssse3 && has("sse4_1") && has("sse4_2") && has("pclmulqdq") && has("aes");
  const bool avx2 = sse4 && has("avx2") && has("fma") && has("bmi1") && has("bmi2") && has("f16c") && has("abm");
  const bool avx3 = avx2 && has("avx512f") && has("avx512vl") && has("avx512dq") && has("avx512bw");
  CHECK(targets == std::size_t{1} + ssse3 + sse4 + avx2 + avx3);
#else
  CHECK(targets == 1);
#endif
}

}  // namespace test_simd
