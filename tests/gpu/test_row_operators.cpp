// The operators that read and write rows once, against double precision (see test_operators.cpp).
#include "tests/gpu/device_values.h"
#include "tests/gpu/harness.h"

namespace {

using namespace gpu_test;

GPU_TEST("norms") {
  Random random(9);
  for (const std::uint32_t cols : {64u, 300u, 5120u, 12288u, 16392u}) {
    const std::uint32_t rows = 5;
    const Floats x = rounded(random.values(rows * cols), Format::f16), gamma = random.values(cols);
    const Floats beta = random.values(cols);
    for (const bool centre : {true, false}) {
      Floats expected(x.size());
      for (std::uint32_t r = 0; r < rows; ++r) {
        double mean = 0, square = 0;
        for (std::uint32_t i = 0; i < cols && centre; ++i) mean += double{x[r * cols + i]} / cols;
        for (std::uint32_t i = 0; i < cols; ++i) square += std::pow(double{x[r * cols + i]} - mean, 2) / cols;
        for (std::uint32_t i = 0; i < cols; ++i) {
          const double value = (double{x[r * cols + i]} - mean) / std::sqrt(square + 1e-5) * double{gamma[i]};
          expected[r * cols + i] = static_cast<float>(value + (centre ? double{beta[i]} : 0.0));
        }
      }
      const auto xs = narrowed<__half>(x);
      const auto gammas = on_device(gamma), betas = on_device(beta);
      DeviceBuffer<__half> out(context().pool, x.size());
      norm<__half>(context().stream, xs.data(), gammas.data(), centre ? betas.data() : nullptr, 1e-5f, rows, cols,
                   out.data());
      EXPECT_WITHIN(on_host(out), expected, 2e-3);
    }
  }
}

GPU_TEST("norms of the heads of q and of k, in place; v stays") {
  Random random(12);
  for (const std::uint32_t d : {12u, 64u, 96u, 256u}) {
    for (const std::uint32_t q_heads : {5u, 0u}) {
      const std::uint32_t k_heads = 2, rows = 3, stride = (q_heads + 2 * k_heads) * d;
      const Floats x = rounded(random.values(rows * stride), Format::f16), q = random.values(d), k = random.values(d);
      Floats expected = x;
      for (std::uint32_t at = 0; at < x.size(); at += d) {
        const std::uint32_t head = at % stride / d;
        if (head >= q_heads + k_heads) continue;
        double square = 0;
        for (std::uint32_t i = 0; i < d; ++i) square += double{x[at + i]} * double{x[at + i]} / d;
        for (std::uint32_t i = 0; i < d; ++i)
          expected[at + i] =
              static_cast<float>(double{x[at + i]} / std::sqrt(square + 1e-6) * double{head < q_heads ? q[i] : k[i]});
      }
      const auto xs = narrowed<__half>(x);
      const auto qs = on_device(q), ks = on_device(k);
      norm_heads<__half>(context().stream, xs.data(), stride, rows, q_heads, k_heads, d, qs.data(), ks.data(), 1e-6f);
      EXPECT_WITHIN(on_host(xs), expected, 2e-3);
    }
  }
}

void test_elementwise(std::uint32_t cols, std::uint32_t half) {
  Random random(11);
  const std::uint32_t rows = 7;
  const Floats x = rounded(random.values(rows * cols), Format::f16),
               y = rounded(random.values(rows * cols), Format::f16);
  Floats gated(x.size()), sum(x.size()), positive(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    gated[i] = static_cast<float>(double{x[i]} / (1 + std::exp(-double{x[i]})) * double{y[i]});
    sum[i] = x[i] + y[i];
    positive[i] = std::max(x[i], 0.0f);
  }
  const auto ys = narrowed<__half>(y);
  auto xs = narrowed<__half>(x);
  swiglu<__half>(context().stream, xs.data(), ys.data(), cols, cols, rows, xs.data());
  EXPECT_WITHIN(on_host(xs), gated, 2e-3);
  xs = narrowed<__half>(x);
  add<__half>(context().stream, xs.data(), ys.data(), x.size());
  EXPECT_WITHIN(on_host(xs), sum, 1e-3);
  xs = narrowed<__half>(x);
  relu(context().stream, xs.data(), x.size());
  EXPECT(on_host(xs) == positive);

  constexpr float magnitude = 1.25f;
  Floats turned = x;
  const Floats frequency = random.values(half);
  const std::vector<std::uint32_t> positions{0, 1, 5, 100, 4095, 70, 16383};
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t i = 0; i < cols / 2; ++i) {
      const std::size_t at = r * cols + i / half * 2 * half + i % half;
      const float angle = static_cast<float>(positions[r]) * frequency[i % half];
      const double c = std::cos(double{angle}), s = std::sin(double{angle});
      turned[at] = static_cast<float>(magnitude * (double{x[at]} * c - double{x[at + half]} * s));
      turned[at + half] = static_cast<float>(magnitude * (double{x[at + half]} * c + double{x[at]} * s));
    }
  }
  xs = narrowed<__half>(x);
  const auto frequencies = on_device(frequency);
  const auto at = on_device(positions);
  rotate(context().stream, xs.data(), at.data(), {frequencies.data(), magnitude}, rows, cols, cols, half);
  EXPECT_WITHIN(on_host(xs), turned, 2e-3);
}

GPU_TEST("element-wise operators, one value and eight values per thread") {
  test_elementwise(130, 13);
  test_elementwise(192, 16);
  test_elementwise(4800, 40);
}

void test_append(std::uint32_t heads, std::uint32_t d) {
  Random random(10);
  const std::uint32_t kv_heads = 1, capacity = 5, slots = 2, row = (heads + 2 * kv_heads) * d;
  const Floats qkv = rounded(random.values(slots * row), Format::f16), frequency = random.values(d / 2);
  const std::vector<std::uint32_t> positions{4, 2};
  const auto x = narrowed<__half>(qkv), keys = narrowed<__half>(Floats(slots * capacity * d, -7)),
             values = narrowed<__half>(Floats(slots * capacity * d, -7));
  const auto at_positions = on_device(positions);
  const auto frequencies = on_device(frequency);
  const CacheShape shape{heads, kv_heads, d, capacity};
  append(context().stream, x.data(), at_positions.data(), {frequencies.data(), 1}, slots, shape, keys.data(),
         values.data());
  const Floats q = on_host(x), k = on_host(keys), v = on_host(values);
  for (std::uint32_t s = 0; s < slots; ++s) {
    for (std::uint32_t head = 0; head < heads + kv_heads; ++head) {
      for (std::uint32_t i = 0; i < d / 2; ++i) {
        const double angle = double{static_cast<float>(positions[s])} * double{frequency[i]};
        const double a = qkv[s * row + head * d + i], b = qkv[s * row + head * d + i + d / 2];
        const std::size_t at = (s * capacity + positions[s]) * d + i;
        const double first = head < heads ? q[s * row + head * d + i] : k[at];
        const double second = head < heads ? q[s * row + head * d + i + d / 2] : k[at + d / 2];
        EXPECT(std::abs(first - (a * std::cos(angle) - b * std::sin(angle))) < 2e-3);
        EXPECT(std::abs(second - (b * std::cos(angle) + a * std::sin(angle))) < 2e-3);
      }
    }
    for (std::uint32_t i = 0; i < d; ++i) {
      EXPECT(v[(s * capacity + positions[s]) * d + i] == qkv[s * row + (heads + kv_heads) * d + i]);
    }
    EXPECT(v[s * capacity * d] == -7);
  }
  const auto rows = narrowed<__half>(qkv);
  const __half* const from = rows.data() + heads * d;
  store(context().stream, from, from + kv_heads * d, row, slots, 1, shape, keys.data(), values.data());
  const Floats stored = on_host(keys), stored_values = on_host(values);
  for (std::uint32_t t = 0; t < slots; ++t) {
    for (std::uint32_t i = 0; i < d; ++i) {
      EXPECT(stored[(1 + t) * d + i] == qkv[t * row + heads * d + i]);
      EXPECT(stored_values[(1 + t) * d + i] == qkv[t * row + (heads + kv_heads) * d + i]);
    }
  }
}

GPU_TEST("append rotates q and k and writes the caches at each sequence's position; store fills a slot") {
  test_append(3, 8);
  test_append(3, 32);
  test_append(20, 128);
}

}  // namespace
