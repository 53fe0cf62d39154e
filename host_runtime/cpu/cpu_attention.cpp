#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/simd.h"
#include "host_runtime/cpu/blas.h"
#include "host_runtime/cpu/cpu_backend.h"
#include "host_runtime/cpu/cpu_storage.h"

namespace csdsim::host {
namespace {

// Queries whose scores are held at a time: enough for GEMM to run at speed.
constexpr std::size_t kQueryBlock = 64;

// One query head of one sequence; q, k, v and out point at the head's first element of the sequence's first token.
void causal_head(const float* q, std::size_t q_stride, const float* k, const float* v, std::size_t kv_stride,
                 std::size_t tokens, std::size_t d, std::vector<float>& scores, float* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  const auto dim = static_cast<int>(d), ldq = static_cast<int>(q_stride), ldkv = static_cast<int>(kv_stride);
  for (std::size_t first = 0; first < tokens; first += kQueryBlock) {
    const std::size_t queries = std::min(kQueryBlock, tokens - first);
    const std::size_t keys = first + queries;
    scores.resize(queries * keys);
    const auto rows = static_cast<int>(queries), cols = static_cast<int>(keys);
    blas::multiply(blas::Second::transposed, rows, cols, dim, scale, q + first * q_stride, ldq, k, ldkv, scores.data(),
                   cols);
    for (std::size_t i = 0; i < queries; ++i) {
      float* row = scores.data() + i * keys;
      const std::size_t visible = first + i + 1;
      const float sum = simd::exp_shifted(row, visible, *std::max_element(row, row + visible));
      for (std::size_t j = 0; j < visible; ++j) row[j] /= sum;
      std::fill(row + visible, row + keys, 0.0f);
    }
    blas::multiply(blas::Second::as_stored, rows, dim, cols, 1.0f, scores.data(), cols, v, ldkv, out + first * q_stride,
                   ldq);
  }
}

}  // namespace

void CpuBackend::causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionShape shape,
                                  std::span<const std::uint32_t> lengths, Tensor& out) {
  const std::size_t d = shape.head_dim, q_stride = shape.heads * d, kv_stride = shape.kv_heads * d;
  const std::size_t rows = std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
  require(q.rows == rows && k.rows == rows && v.rows == rows && out.rows == rows, "causal_attention (lengths)");
  require(q.cols == q_stride && out.cols == q_stride && k.cols == kv_stride && v.cols == kv_stride &&
              shape.heads % shape.kv_heads == 0,
          "causal_attention");
  const std::size_t group = shape.heads / shape.kv_heads;
  std::vector<float> scores;
  std::size_t first = 0;
  for (const std::uint32_t length : lengths) {
    for (std::size_t head = 0; head < shape.heads; ++head) {
      const std::size_t q_at = first * q_stride + head * d, kv_at = first * kv_stride + head / group * d;
      causal_head(data(q) + q_at, q_stride, data(k) + kv_at, data(v) + kv_at, kv_stride, length, d, scores,
                  data(out) + q_at);
    }
    first += length;
  }
}

}  // namespace csdsim::host
