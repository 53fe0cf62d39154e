#include "host_runtime/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "base/simd.h"
#include "host_runtime/cpu/blas.h"
#include "host_runtime/cpu/cpu_storage.h"

namespace csdsim::host {
namespace {

// Weight rows that a small batch works on at a time: they stay in the L1 cache while every input passes over them.
constexpr std::size_t kTileBytes = 16384;
// Weights of 16 bits that a GEMM widens at a time.
constexpr std::size_t kPanelElements = std::size_t{1} << 18;

/// A copy on huge pages where it fills them: a decode step reads all weights, and few pages mean few misses of the TLB.
template <class Element>
AlignedArray<Element> copy_of(std::span<const std::byte> bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20, kLine = 64;
  const std::size_t whole = bytes.size() / kHugePage * kHugePage, alignment = whole > 0 ? kHugePage : kLine;
  const std::size_t size = std::max(bytes.size() + alignment - 1, alignment) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  if (whole > 0) ::madvise(memory, whole, MADV_HUGEPAGE);  // advice: without huge pages the others do
  std::memcpy(memory, bytes.data(), bytes.size());
  return AlignedArray<Element>(static_cast<Element*>(memory));
}

/// `count` elements as fp32.
template <class Element>
std::vector<float> widened(std::span<const std::byte> bytes, std::size_t count) {
  const auto narrow = copy_of<Element>(bytes);
  std::vector<float> wide(count);
  simd::widen(narrow.get(), wide.data(), count);
  return wide;
}

/// Rows of a table of 16 bits.
template <class Element>
void gather(const Element* table, std::span<const std::uint32_t> ids, std::size_t cols, float* to) {
  for (const std::uint32_t id : ids) {
    simd::widen(table + id * cols, to, cols);
    to += cols;
  }
}

/// out = x w^T for few rows of x, each by itself: a tile of w is read from memory once.
template <class Element>
void few_rows(const Tensor& x, const Element* w, std::size_t w_rows, float* to) {
  const float* const in = data(x);
  if (x.rows == 1) return simd::matrix_vector(in, w, w_rows, x.cols, to);
  const std::size_t tile = std::max<std::size_t>(8, kTileBytes / (sizeof(Element) * x.cols) / 8 * 8);
  for (std::size_t first = 0; first < w_rows; first += tile) {
    const std::size_t count = std::min(tile, w_rows - first);
    for (std::size_t i = 0; i < x.rows; ++i)
      simd::matrix_vector(in + i * x.cols, w + first * x.cols, count, x.cols, to + i * w_rows + first);
  }
}

/// out = x w^T by GEMM on a panel of w at a time.
template <class Element>
void many_rows(const Tensor& x, const Element* w, std::size_t w_rows, float* to) {
  const auto rows = static_cast<int>(x.rows), in_cols = static_cast<int>(x.cols), out_cols = static_cast<int>(w_rows);
  const std::size_t panel = std::max<std::size_t>(1, kPanelElements / x.cols);
  std::vector<float> wide(std::min(panel, w_rows) * x.cols);
  for (std::size_t first = 0; first < w_rows; first += panel) {
    const std::size_t count = std::min(panel, w_rows - first);
    simd::widen(w + first * x.cols, wide.data(), count * x.cols);
    blas::multiply(blas::Second::transposed, rows, static_cast<int>(count), in_cols, 1.0f, data(x), in_cols,
                   wide.data(), in_cols, to + first, out_cols);
  }
}

/// few_rows() or many_rows().
template <class Element>
void narrow_product(const Tensor& x, const Element* w, std::size_t w_rows, float* to) {
  x.rows <= CpuBackend::kRowwiseBatch ? few_rows(x, w, w_rows, to) : many_rows(x, w, w_rows, to);
}

}  // namespace

CpuBackend::CpuBackend(int threads) { blas::set_threads(threads); }

Weight CpuBackend::load(const StoredTensor& tensor) {
  require(tensor.shape.size() == 1 || tensor.shape.size() == 2, "load (rank 1 or 2)");
  Weight weight{tensor.shape.size() == 2 ? tensor.shape[0] : 1, tensor.shape.back(), nullptr};
  const std::size_t count = weight.rows * weight.cols;
  require(tensor.bytes.size() == count * element_size(tensor.type), "load (bytes)");
  auto storage = std::make_unique<CpuWeight>();
  if (tensor.type == ElementType::f32) {
    storage->full.resize(count);
    std::memcpy(storage->full.data(), tensor.bytes.data(), tensor.bytes.size());
  } else if (const bool half = tensor.type == ElementType::f16; tensor.shape.size() == 1) {
    storage->full = half ? widened<Half>(tensor.bytes, count) : widened<Bf16>(tensor.bytes, count);
  } else if (half) {
    storage->half = copy_of<Half>(tensor.bytes);
  } else {
    storage->brain = copy_of<Bf16>(tensor.bytes);
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
  for (const std::uint32_t id : ids) require(id < table.rows, "embedding (id)");
  if (rows.half) return gather(rows.half.get(), ids, table.cols, to);
  if (rows.brain) return gather(rows.brain.get(), ids, table.cols, to);
  for (const std::uint32_t id : ids) {
    std::copy_n(rows.full.data() + id * table.cols, table.cols, to);
    to += table.cols;
  }
}

void CpuBackend::linear(const Tensor& x, const Weight& w, const Weight* bias, Tensor& out) {
  require(x.cols == w.cols && out.rows == x.rows && out.cols == w.rows, "linear");
  require(bias == nullptr || bias->cols == w.rows, "linear (bias)");
  const CpuWeight& weights = data(w);
  const float* in = data(x);
  float* to = data(out);
  const auto rows = static_cast<int>(x.rows), in_cols = static_cast<int>(x.cols), out_cols = static_cast<int>(w.rows);
  if (weights.half) {
    narrow_product(x, weights.half.get(), w.rows, to);
  } else if (weights.brain) {
    narrow_product(x, weights.brain.get(), w.rows, to);
  } else if (x.rows <= kRowwiseBatch) {
    for (std::size_t i = 0; i < x.rows; ++i) {
      blas::multiply(weights.full.data(), out_cols, in_cols, in + i * x.cols, to + i * w.rows);
    }
  } else {
    blas::multiply(blas::Second::transposed, rows, out_cols, in_cols, 1.0f, in, in_cols, weights.full.data(), in_cols,
                   to, out_cols);
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

void CpuBackend::rotate(Tensor& x, std::span<const std::uint32_t> positions, const Weight& inverse_frequencies,
                        float magnitude) {
  const std::size_t half = inverse_frequencies.cols;
  require(positions.size() == x.rows && x.cols % (2 * half) == 0, "rotate");
  const std::vector<float>& frequency = data(inverse_frequencies).full;
  std::vector<float> cosine(half), sine(half);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(positions[r]) * frequency[i];
      cosine[i] = std::cos(angle) * magnitude;
      sine[i] = std::sin(angle) * magnitude;
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
