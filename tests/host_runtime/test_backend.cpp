// The CPU backend's operators against double.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <complex>
#include <random>

#include "base/error.h"
#include "host_runtime/core/attention/kv_cache.h"
#include "host_runtime/cpu/cpu_backend.h"
#include "tests/host_runtime/naive_attention.h"

namespace test_backend {

using namespace csdsim;
using namespace csdsim::host;

namespace {

class Random {
 public:
  explicit Random(unsigned seed) : rng_(seed) {}
  /// Multiples of 1/64 in [-1, 1]: exact in fp16 and in bf16.
  std::vector<float> values(std::size_t count) {
    std::vector<float> result(count);
    for (float& v : result) v = static_cast<float>(static_cast<int>(rng_() % 129) - 64) / 64.0f;
    return result;
  }

 private:
  std::mt19937 rng_;
};

Tensor tensor(CpuBackend& backend, std::size_t rows, const std::vector<float>& values) {
  Tensor result = backend.allocate(rows, values.size() / rows);
  std::vector<Half> halves(values.size());
  floats_to_halves(values, halves);
  backend.upload(halves, result);
  return result;
}

std::vector<float> floats(CpuBackend& backend, const Tensor& tensor) {
  std::vector<float> values(tensor.rows * tensor.cols);
  backend.download(tensor, values);
  return values;
}

Weight weight(CpuBackend& backend, ElementType type, std::vector<std::uint64_t> shape,
              const std::vector<float>& values) {
  if (type == ElementType::f32) return backend.load({type, std::move(shape), std::as_bytes(std::span(values))});
  if (type == ElementType::bf16) {
    std::vector<Bf16> brains;
    for (const float v : values) brains.push_back(static_cast<Bf16>(std::bit_cast<std::uint32_t>(v) >> 16));
    return backend.load({type, std::move(shape), std::as_bytes(std::span<const Bf16>(brains))});
  }
  std::vector<Half> halves(values.size());
  floats_to_halves(values, halves);
  return backend.load({type, std::move(shape), std::as_bytes(std::span<const Half>(halves))});
}

}  // namespace

TEST_CASE("linear equals a sum in double, row by row and as GEMM, in one panel and in several") {
  CpuBackend backend;
  Random random(1);
  // 3000 columns: a panel of widened weights holds 87 rows.
  const std::vector<std::pair<std::size_t, std::size_t>> shapes{{200, 3000}, {33, 40}, {1, 1}};
  for (const auto& [out_cols, in_cols] : shapes) {
    for (const std::size_t rows : {1, 2, 16, 17, 30}) {
      for (const ElementType type : {ElementType::f16, ElementType::bf16, ElementType::f32}) {
        const auto x = random.values(rows * in_cols), w = random.values(out_cols * in_cols),
                   b = random.values(out_cols);
        const Weight matrix = weight(backend, type, {out_cols, in_cols}, w),
                     bias = weight(backend, type, {out_cols}, b);
        Tensor out = backend.allocate(rows, out_cols);
        backend.linear(tensor(backend, rows, x), matrix, &bias, out);
        const auto found = floats(backend, out);
        double worst = 0;
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t o = 0; o < out_cols; ++o) {
            double sum = b[o];
            for (std::size_t i = 0; i < in_cols; ++i) sum += double{x[r * in_cols + i]} * double{w[o * in_cols + i]};
            worst = std::max(worst, std::abs(found[r * out_cols + o] - sum));
          }
        }
        INFO(rows << " x " << in_cols << " -> " << out_cols);
        CHECK(worst < 1e-3);
      }
    }
  }
}

TEST_CASE("up to kRowwiseBatch rows, a row's bits do not depend on its batch") {
  CpuBackend backend;
  Random random(2);
  const auto x = random.values(8 * 100);
  for (const ElementType type : {ElementType::f16, ElementType::bf16, ElementType::f32}) {
    const Weight matrix = weight(backend, type, {77, 100}, random.values(7700));
    Tensor batch = backend.allocate(8, 77), single = backend.allocate(1, 77);
    backend.linear(tensor(backend, 8, x), matrix, nullptr, batch);
    const auto all = floats(backend, batch);
    for (std::size_t r = 0; r < 8; ++r) {
      const std::vector<float> row(x.begin() + static_cast<std::ptrdiff_t>(r * 100),
                                   x.begin() + static_cast<std::ptrdiff_t>((r + 1) * 100));
      backend.linear(tensor(backend, 1, row), matrix, nullptr, single);
      const auto one = floats(backend, single);
      CHECK(std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(r * 77)));
    }
  }
}

TEST_CASE("layer norm, relu, add, rows") {
  CpuBackend backend;
  Random random(3);
  const auto x = random.values(3 * 50), gamma = random.values(50), beta = random.values(50);
  Tensor out = backend.allocate(3, 50);
  backend.layer_norm(tensor(backend, 3, x), weight(backend, ElementType::f16, {50}, gamma),
                     weight(backend, ElementType::f32, {50}, beta), 1e-5f, out);
  const auto normed = floats(backend, out);
  for (std::size_t r = 0; r < 3; ++r) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < 50; ++i) mean += x[r * 50 + i] / 50.0;
    for (std::size_t i = 0; i < 50; ++i) variance += std::pow(x[r * 50 + i] - mean, 2) / 50.0;
    for (std::size_t i = 0; i < 50; ++i) {
      const double expected = (x[r * 50 + i] - mean) / std::sqrt(variance + 1e-5) * gamma[i] + beta[i];
      CHECK(normed[r * 50 + i] == Approx(expected).margin(1e-5));
    }
  }
  Tensor values = tensor(backend, 2, {-1, 2, 3, -4});
  backend.relu(values);
  CHECK(floats(backend, values) == std::vector<float>{0, 2, 3, 0});
  backend.add(values, tensor(backend, 2, {1, 1, 1, 1}));
  CHECK(floats(backend, values) == std::vector<float>{1, 3, 4, 1});
  Tensor chosen = backend.allocate(3, 2);
  const std::vector<std::uint32_t> rows{1, 0, 1};
  backend.select_rows(values, rows, chosen);
  CHECK(floats(backend, chosen) == std::vector<float>{4, 1, 1, 3, 4, 1});
  CHECK_THROWS_AS(backend.add(values, chosen), InternalError);
}

TEST_CASE("RMS norm, rotation, SwiGLU") {
  CpuBackend backend;
  Random random(5);
  const auto x = random.values(3 * 48), gamma = random.values(48), up = random.values(3 * 48);
  Tensor out = backend.allocate(3, 48);
  backend.rms_norm(tensor(backend, 3, x), weight(backend, ElementType::f16, {48}, gamma), 1e-2f, out);
  const auto normed = floats(backend, out);
  for (std::size_t r = 0; r < 3; ++r) {
    double squares = 0;
    for (std::size_t i = 0; i < 48; ++i) squares += std::pow(x[r * 48 + i], 2) / 48.0;
    for (std::size_t i = 0; i < 48; ++i) {
      CHECK(normed[r * 48 + i] == Approx(x[r * 48 + i] / std::sqrt(squares + 1e-2) * gamma[i]).margin(1e-6));
    }
  }

  // Three heads of 16: as complex numbers head[i] + i head[i + 8], turned by position * frequency.
  const std::vector<std::uint32_t> positions{0, 1, 900};
  const std::vector<float> frequencies{1, 0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0.015625f, 0.0078125f};
  Tensor turned = tensor(backend, 3, x);
  backend.rotate(turned, positions, weight(backend, ElementType::f32, {8}, frequencies), 1.5f);
  const auto rotated = floats(backend, turned);
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t head = r * 48; head < (r + 1) * 48; head += 16) {
      for (std::size_t i = 0; i < 8; ++i) {
        const std::complex<double> before(x[head + i], x[head + i + 8]);
        const auto after = before * std::polar(1.5, double(positions[r]) * double{frequencies[i]});
        CHECK(rotated[head + i] == Approx(after.real()).margin(1e-6));
        CHECK(rotated[head + i + 8] == Approx(after.imag()).margin(1e-6));
      }
    }
  }

  Tensor gate = tensor(backend, 3, x);
  backend.swiglu(gate, tensor(backend, 3, up));
  const auto gated = floats(backend, gate);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(gated[i] == Approx(x[i] / (1 + std::exp(-double{x[i]})) * up[i]).margin(1e-6));
  }
  CHECK_THROWS_AS(backend.rotate(gate, {}, weight(backend, ElementType::f32, {8}, frequencies), 1), InternalError);
}

TEST_CASE("causal attention equals softmax in double, ragged and grouped") {
  CpuBackend backend;
  Random random(4);
  const AttentionShape shape{4, 2, 16};
  const std::vector<std::uint32_t> lengths{1, 150, 64, 7};
  const std::size_t rows = 222;
  const auto q = random.values(rows * 64), k = random.values(rows * 32), v = random.values(rows * 32);
  Tensor out = backend.allocate(rows, 64);
  backend.causal_attention(tensor(backend, rows, q), tensor(backend, rows, k), tensor(backend, rows, v), shape, lengths,
                           out);
  const auto found = floats(backend, out);
  double worst = 0;
  std::size_t row = 0;
  for (const std::uint32_t length : lengths) {
    ModelConfig config;
    config.layers = 1;
    config.kv_heads = 2;
    config.head_dim = 16;
    HostKvCache cache(config, KeyLayout::token_major);
    cache.create(SequenceId{0});
    for (std::uint32_t t = 0; t < length; ++t, ++row) {
      std::vector<Half> key(32), value(32);
      floats_to_halves(std::span(k).subspan(row * 32, 32), key);
      floats_to_halves(std::span(v).subspan(row * 32, 32), value);
      cache.append(SequenceId{0}, LayerId{0}, key, value);
      for (std::size_t head = 0; head < 4; ++head) {
        const auto at = static_cast<std::ptrdiff_t>(row * 64 + head * 16);
        const KvHead kv_head{static_cast<std::uint32_t>(head / 2)};
        const auto expected =
            test::naive_dense({q.begin() + at, q.begin() + at + 16}, cache.view(SequenceId{0}, LayerId{0}, kv_head));
        for (std::size_t i = 0; i < 16; ++i) worst = std::max(worst, std::abs(found[at + i] - expected[i]));
      }
    }
  }
  CHECK(worst < 1e-5);
}

}  // namespace test_backend
