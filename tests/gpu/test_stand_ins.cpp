// The stand-ins of a bare CUDA machine do what they stand in for: all of base/simd.h, the BLAS and the fmt that the
// host runtime uses. Everything here is built with them.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <random>

#include "base/simd.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/cpu/cpu_backend.h"

namespace {

using namespace csdsim;
using namespace csdsim::host;

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("failed: %s\n", what);
  ++failures;
}

bool near(double found, double expected) { return std::abs(found - expected) <= 1e-4 * (1 + std::abs(expected)); }

struct Random {
  std::mt19937 engine{1};
  std::vector<float> floats(std::size_t count) {
    std::vector<float> values(count);
    for (float& v : values) v = static_cast<float>(static_cast<int>(engine() % 2001) - 1000) / 500.0f;
    return values;
  }
  std::vector<Half> halves(std::size_t count) {
    std::vector<Half> values;
    for (const float v : floats(count)) values.push_back(float_to_half(v));
    return values;
  }
};

double dot(const float* q, const Half* row, std::size_t d) {
  double sum = 0;
  for (std::size_t i = 0; i < d; ++i) sum += double{q[i]} * double{half_to_float(row[i])};
  return sum;
}

void test_simd() {
  Random random;
  constexpr std::size_t d = 37, rows = 5, group = 3;
  const std::vector<float> q = random.floats(group * d), weights = random.floats(group * rows);
  const std::vector<Half> keys = random.halves(rows * d);
  std::vector<float> scores(rows), grouped(group * rows), out(d), outs(group * d);
  simd::gemv_rows(q.data(), keys.data(), rows, d, scores.data());
  simd::gemv_rows_group(q.data(), group, keys.data(), rows, d, grouped.data(), rows);
  for (std::size_t g = 0; g < group; ++g) {
    for (std::size_t j = 0; j < rows; ++j) {
      expect(near(grouped[g * rows + j], dot(q.data() + g * d, keys.data() + j * d, d)), "gemv_rows_group");
    }
  }
  expect(near(simd::dot(q.data(), keys.data(), d), dot(q.data(), keys.data(), d)), "dot");
  expect(near(scores[4], grouped[4]), "gemv_rows");
  simd::accumulate_rows(weights.data(), keys.data(), rows, d, out.data());
  simd::accumulate_rows_group(weights.data(), rows, group, keys.data(), rows, d, outs.data());
  std::vector<float> by_row(d);
  for (std::size_t j = 0; j < rows; ++j) simd::axpy(weights[j], keys.data() + j * d, by_row.data(), d);
  for (std::size_t i = 0; i < d; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < rows; ++j) sum += double{weights[j]} * double{half_to_float(keys[j * d + i])};
    expect(near(out[i], sum) && near(by_row[i], sum) && near(outs[i], sum), "axpy, accumulate_rows");
  }
  std::vector<float> x{1, -INFINITY, 0};
  expect(near(simd::exp_shifted(x.data(), 3, 1), 1 + std::exp(-1.0)) && x[1] == 0, "exp_shifted");
  expect(simd::max_value(weights.data(), 0) == -INFINITY && simd::max_value(x.data(), 3) == 1, "max_value");
  simd::prefetch(keys.data(), d);
  std::vector<float> wide(d);
  std::vector<Half> narrow(d);
  simd::widen(keys.data(), wide.data(), d);
  simd::narrow(wide.data(), narrow.data(), d);
  expect(std::equal(narrow.begin(), narrow.end(), keys.begin()), "widen, narrow");
  expect(simd::target_name() != nullptr, "target_name");
}

void test_backend() {
  Random random;
  constexpr std::size_t cols = 48, out_cols = 9;
  for (const ElementType type : {ElementType::f16, ElementType::f32}) {
    const std::vector<Half> half = random.halves(out_cols * cols);
    std::vector<float> full(half.size());
    simd::widen(half.data(), full.data(), half.size());
    const auto bytes = type == ElementType::f16 ? std::as_bytes(std::span(half)) : std::as_bytes(std::span(full));
    CpuBackend backend;
    const Weight w = backend.load({type, {out_cols, cols}, bytes});
    // One row through the row kernels or gemv, twenty through gemm.
    for (const std::size_t rows : {std::size_t{1}, std::size_t{20}}) {
      const std::vector<Half> x = random.halves(rows * cols);
      Tensor in = backend.allocate(rows, cols), out = backend.allocate(rows, out_cols);
      backend.upload(x, in);
      backend.linear(in, w, nullptr, out);
      std::vector<float> found(rows * out_cols), wide(x.size());
      backend.download(out, std::span<float>(found));
      simd::widen(x.data(), wide.data(), x.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        expect(near(found[i], dot(wide.data() + i / out_cols * cols, half.data() + i % out_cols * cols, cols)),
               "linear");
      }
    }
  }
}

}  // namespace

int main() {
  test_simd();
  test_backend();
  expect(fmt::format("{} of {}: {}", 3, std::string("x"), 0.5) == "3 of x: 0.5", "fmt::format");
  expect(configure_method("sparq", {}, 64).setting == "r 8, k S/8, l k/4", "configure_method");
  std::printf("%d failed\n", failures);
  return failures > 0;
}
