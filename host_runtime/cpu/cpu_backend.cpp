#include "host_runtime/cpu/cpu_backend.h"

#include <cblas.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/simd.h"
#include "host_runtime/cpu/cpu_storage.h"

namespace csdsim::host {
namespace {

// Weight rows that a small batch works on at a time: they stay in the L1 cache while every input passes over them.
constexpr std::size_t kTileBytes = 16384;
// fp16 weights that a GEMM widens at a time.
constexpr std::size_t kPanelElements = std::size_t{1} << 18;

}  // namespace

CpuBackend::CpuBackend(int threads) { openblas_set_num_threads(threads); }

Weight CpuBackend::load(const StoredTensor& tensor) {
  require(tensor.shape.size() == 1 || tensor.shape.size() == 2, "load (rank 1 or 2)");
  Weight weight{tensor.shape.size() == 2 ? tensor.shape[0] : 1, tensor.shape.back(), nullptr};
  const std::size_t count = weight.rows * weight.cols;
  require(tensor.bytes.size() == count * element_size(tensor.type), "load (bytes)");
  auto storage = std::make_unique<CpuWeight>();
  if (tensor.type == ElementType::f32) {
    storage->full.resize(count);
    std::memcpy(storage->full.data(), tensor.bytes.data(), tensor.bytes.size());
  } else {
    std::vector<std::uint16_t> raw(count);
    std::memcpy(raw.data(), tensor.bytes.data(), tensor.bytes.size());
    if (tensor.type == ElementType::f16 && tensor.shape.size() == 2) {
      storage->half = std::move(raw);
    } else {
      storage->full.resize(count);
      if (tensor.type == ElementType::f16) {
        simd::widen(raw.data(), storage->full.data(), count);
      } else {
        std::transform(raw.begin(), raw.end(), storage->full.begin(),
                       [](std::uint16_t b) { return std::bit_cast<float>(std::uint32_t{b} << 16); });
      }
    }
  }
  weight.storage = std::move(storage);
  return weight;
}

Tensor CpuBackend::allocate(std::size_t rows, std::size_t cols) {
  auto storage = std::make_unique<CpuTensor>();
  storage->values = std::make_unique_for_overwrite<float[]>(rows * cols);
  return {rows, cols, std::move(storage)};
}

void CpuBackend::upload(std::span<const Half> values, Tensor& to) {
  require(values.size() == to.rows * to.cols, "upload");
  simd::widen(values.data(), data(to), values.size());
}

void CpuBackend::download(const Tensor& from, std::span<Half> values) {
  require(values.size() == from.rows * from.cols, "download");
  simd::narrow(data(from), values.data(), values.size());
}

void CpuBackend::download(const Tensor& from, std::span<float> values) {
  require(values.size() == from.rows * from.cols, "download");
  std::copy_n(data(from), values.size(), values.data());
}

void CpuBackend::embedding(const Weight& table, std::span<const std::uint32_t> ids, Tensor& out) {
  require(out.rows == ids.size() && out.cols == table.cols, "embedding");
  const CpuWeight& rows = data(table);
  float* to = data(out);
  for (const std::uint32_t id : ids) {
    require(id < table.rows, "embedding (id)");
    if (rows.half.empty()) {
      std::copy_n(rows.full.data() + id * table.cols, table.cols, to);
    } else {
      simd::widen(rows.half.data() + id * table.cols, to, table.cols);
    }
    to += table.cols;
  }
}

void CpuBackend::linear(const Tensor& x, const Weight& w, const Weight* bias, Tensor& out) {
  require(x.cols == w.cols && out.rows == x.rows && out.cols == w.rows, "linear");
  require(bias == nullptr || bias->cols == w.rows, "linear (bias)");
  const CpuWeight& weights = data(w);
  const float* in = data(x);
  float* to = data(out);
  const auto rows = static_cast<blasint>(x.rows), in_cols = static_cast<blasint>(x.cols),
             out_cols = static_cast<blasint>(w.rows);
  const bool rowwise = x.rows <= kRowwiseBatch;
  if (!weights.half.empty() && rowwise) {
    const std::size_t tile = std::max<std::size_t>(8, kTileBytes / (sizeof(Half) * x.cols));
    for (std::size_t first = 0; first < w.rows; first += tile) {
      const std::size_t count = std::min(tile, w.rows - first);
      for (std::size_t i = 0; i < x.rows; ++i) {
        simd::gemv_rows(in + i * x.cols, weights.half.data() + first * w.cols, count, w.cols, to + i * w.rows + first);
      }
    }
  } else if (!weights.half.empty()) {
    const std::size_t panel = std::max<std::size_t>(1, kPanelElements / x.cols);
    std::vector<float> widened(std::min(panel, w.rows) * w.cols);
    for (std::size_t first = 0; first < w.rows; first += panel) {
      const std::size_t count = std::min(panel, w.rows - first);
      simd::widen(weights.half.data() + first * w.cols, widened.data(), count * w.cols);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, static_cast<blasint>(count), in_cols, 1.0f, in,
                  in_cols, widened.data(), in_cols, 0.0f, to + first, out_cols);
    }
  } else if (rowwise) {
    for (std::size_t i = 0; i < x.rows; ++i) {
      cblas_sgemv(CblasRowMajor, CblasNoTrans, out_cols, in_cols, 1.0f, weights.full.data(), in_cols, in + i * x.cols,
                  1, 0.0f, to + i * w.rows, 1);
    }
  } else {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, out_cols, in_cols, 1.0f, in, in_cols,
                weights.full.data(), in_cols, 0.0f, to, out_cols);
  }
  if (bias != nullptr) {
    const std::vector<float>& b = data(*bias).full;
    for (std::size_t i = 0; i < x.rows; ++i) {
      for (std::size_t j = 0; j < w.rows; ++j) to[i * w.rows + j] += b[j];
    }
  }
}

void CpuBackend::layer_norm(const Tensor& x, const Weight& gamma, const Weight& beta, float epsilon, Tensor& out) {
  require(gamma.cols == x.cols && beta.cols == x.cols && out.rows == x.rows && out.cols == x.cols, "layer_norm");
  const std::vector<float>&scale = data(gamma).full, &shift = data(beta).full;
  const auto width = static_cast<float>(x.cols);
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* in = data(x) + r * x.cols;
    float* to = data(out) + r * x.cols;
    float sum = 0;
    for (std::size_t i = 0; i < x.cols; ++i) sum += in[i];
    const float mean = sum / width;
    float squares = 0;
    for (std::size_t i = 0; i < x.cols; ++i) squares += (in[i] - mean) * (in[i] - mean);
    const float inverse = 1.0f / std::sqrt(squares / width + epsilon);
    for (std::size_t i = 0; i < x.cols; ++i) to[i] = (in[i] - mean) * inverse * scale[i] + shift[i];
  }
}

void CpuBackend::rms_norm(const Tensor& x, const Weight& gamma, float epsilon, Tensor& out) {
  require(gamma.cols == x.cols && out.rows == x.rows && out.cols == x.cols, "rms_norm");
  const std::vector<float>& scale = data(gamma).full;
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* in = data(x) + r * x.cols;
    float* to = data(out) + r * x.cols;
    double squares = 0;
    for (std::size_t i = 0; i < x.cols; ++i) squares += double{in[i]} * double{in[i]};
    const auto inverse = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(x.cols) + double{epsilon}));
    for (std::size_t i = 0; i < x.cols; ++i) to[i] = in[i] * inverse * scale[i];
  }
}

void CpuBackend::rotate(Tensor& x, std::span<const std::uint32_t> positions, const Weight& inverse_frequencies) {
  const std::size_t half = inverse_frequencies.cols;
  require(positions.size() == x.rows && x.cols % (2 * half) == 0, "rotate");
  const std::vector<float>& frequency = data(inverse_frequencies).full;
  std::vector<float> cosine(half), sine(half);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(positions[r]) * frequency[i];
      cosine[i] = std::cos(angle);
      sine[i] = std::sin(angle);
    }
    float* const row = data(x) + r * x.cols;
    for (float* head = row; head < row + x.cols; head += 2 * half) {
      for (std::size_t i = 0; i < half; ++i) {
        const float first = head[i], second = head[i + half];
        head[i] = first * cosine[i] - second * sine[i];
        head[i + half] = second * cosine[i] + first * sine[i];
      }
    }
  }
}

void CpuBackend::relu(Tensor& x) {
  float* values = data(x);
  // Written so that NaN passes through: a broken checkpoint must be visible in the logits.
  for (std::size_t i = 0; i < x.rows * x.cols; ++i) values[i] = values[i] < 0 ? 0 : values[i];
}

void CpuBackend::swiglu(Tensor& gate, const Tensor& up) {
  require(gate.rows == up.rows && gate.cols == up.cols, "swiglu");
  float* to = data(gate);
  const float* from = data(up);
  for (std::size_t i = 0; i < gate.rows * gate.cols; ++i) to[i] = to[i] / (1.0f + std::exp(-to[i])) * from[i];
}

void CpuBackend::fatrelu(Tensor& gate, const Tensor& up, float threshold) {
  require(gate.rows == up.rows && gate.cols == up.cols, "fatrelu");
  float* to = data(gate);
  const float* from = data(up);
  for (std::size_t i = 0; i < gate.rows * gate.cols; ++i) {
    const float silu = to[i] / (1.0f + std::exp(-to[i]));
    to[i] = silu < threshold ? 0 : silu * from[i];
  }
}

void CpuBackend::add(Tensor& x, const Tensor& y) {
  require(x.rows == y.rows && x.cols == y.cols, "add");
  float* to = data(x);
  const float* from = data(y);
  for (std::size_t i = 0; i < x.rows * x.cols; ++i) to[i] += from[i];
}

void CpuBackend::mask(Tensor& x, std::span<const std::uint8_t> kept) {
  require(kept.size() == x.cols || kept.size() == x.rows * x.cols, "mask");
  float* values = data(x);
  for (std::size_t first = 0; first < x.rows * x.cols; first += kept.size()) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i] == 0) values[first + i] = 0;
    }
  }
}

void CpuBackend::round_to_half(Tensor& x) {
  const std::size_t count = x.rows * x.cols;
  std::vector<Half> narrow(count);
  simd::narrow(data(x), narrow.data(), count);
  simd::widen(narrow.data(), data(x), count);
}

void CpuBackend::select_rows(const Tensor& x, std::span<const std::uint32_t> rows, Tensor& out) {
  require(out.rows == rows.size() && out.cols == x.cols, "select_rows");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    require(rows[i] < x.rows, "select_rows (row)");
    std::copy_n(data(x) + rows[i] * x.cols, x.cols, data(out) + i * x.cols);
  }
}

}  // namespace csdsim::host
