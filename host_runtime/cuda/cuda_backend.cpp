#include "host_runtime/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "host_runtime/cuda/attention/cuda_attention.h"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw InternalError(std::string("cuda backend: shapes disagree in ") + what);
}

template <class T>
T* data(const Tensor& tensor) {
  return static_cast<CudaTensor<T>&>(*tensor.storage).values.data();
}
template <class T>
const T* matrix(const Weight& weight) {
  return static_cast<const CudaWeight<T>&>(*weight.storage).values.data();
}
template <class T>
const float* full(const Weight& weight) {
  const auto& values = static_cast<const CudaWeight<T>&>(*weight.storage).full;
  require(values.size() > 0, "a vector that is a matrix");
  return values.data();
}
std::uint32_t narrow(std::size_t size) { return static_cast<std::uint32_t>(size); }

template <class From, class To>
DeviceBuffer<To> converted(Context& context, const StoredTensor& tensor, std::size_t count) {
  // The stored bytes may have any alignment; a copy does not care.
  DeviceBuffer<From> stored(context.pool, count);
  copy_to_device(context.stream, tensor.bytes, reinterpret_cast<std::byte*>(stored.data()));
  if constexpr (std::is_same_v<From, To>) {
    return stored;
  } else {
    DeviceBuffer<To> values(context.pool, count);
    convert(context.stream, stored.data(), values.data(), count);
    return values;
  }
}

}  // namespace

template <class T>
DeviceBuffer<T> load_values(Context& context, const StoredTensor& tensor) {
  std::size_t count = 1;
  for (const std::uint64_t size : tensor.shape) count *= size;
  require(tensor.bytes.size() == count * element_size(tensor.type), "load (bytes)");
  switch (tensor.type) {
    case ElementType::f16:
      return converted<__half, T>(context, tensor, count);
    case ElementType::bf16:
      return converted<__nv_bfloat16, T>(context, tensor, count);
    case ElementType::f32:
      return converted<float, T>(context, tensor, count);
  }
  throw InternalError("cuda backend: unknown element type");
}

template <class T>
CudaBackend<T>::CudaBackend(Context& context) : context_(context) {
  if (!std::is_same_v<T, __half> && context.device.compute_capability < 80) {
    throw UserError(context.device.name + " has no bf16 arithmetic (compute capability 8.0 is needed): use fp16");
  }
}

template <class T>
bool CudaBackend<T>::supports(const MethodOptions& method, const ModelConfig& config) const {
  return supports_on_device(method, config);
}

template <class T>
std::unique_ptr<MethodAttention> CudaBackend<T>::make_attention(const ModelConfig& config, ConfiguredMethod method,
                                                                QueryPrecision) {
  if (!supports(method.options, config)) {
    throw UserError("the cuda backend does not have attention by '" + std::string(method.name) + "' for heads of " +
                    std::to_string(config.head_dim) +
                    " elements (at most 256; int8 and int4: a multiple of 4); --backend cpu has");
  }
  return std::make_unique<CudaAttention<T>>(*this, context_, config, method.options);
}

template <class T>
Weight CudaBackend<T>::load(const StoredTensor& tensor) {
  require(tensor.shape.size() == 1 || tensor.shape.size() == 2, "load (rank 1 or 2)");
  auto storage = std::make_unique<CudaWeight<T>>();
  storage->values = load_values<T>(context_, tensor);
  if (tensor.shape.size() == 1) storage->full = load_values<float>(context_, tensor);
  return {tensor.shape.size() == 2 ? tensor.shape[0] : 1, tensor.shape.back(), std::move(storage)};
}

template <class T>
Tensor CudaBackend<T>::allocate(std::size_t rows, std::size_t cols) {
  auto storage = std::make_unique<CudaTensor<T>>();
  storage->values = DeviceBuffer<T>(context_.pool, rows * cols);
  return {rows, cols, std::move(storage)};
}

template <class T>
DeviceBuffer<std::uint32_t> CudaBackend<T>::on_device(std::span<const std::uint32_t> values) {
  DeviceBuffer<std::uint32_t> copy(context_.pool, values.size());
  copy_to_device(context_.stream, values, copy.data());
  return copy;
}

template <class T>
void CudaBackend<T>::upload(std::span<const Half> values, Tensor& to) {
  require(values.size() == to.rows * to.cols, "upload");
  context_.copies.in(std::as_bytes(values), [&](const std::byte* landed) {
    if constexpr (std::is_same_v<T, __half>) {
      CSDSIM_CUDA(
          cudaMemcpyAsync(data<T>(to), landed, values.size_bytes(), cudaMemcpyDeviceToDevice, context_.stream.get()));
    } else {
      convert(context_.stream, reinterpret_cast<const __half*>(landed), data<T>(to), values.size());
    }
  });
}

namespace {

/// Rows of a tensor in another format on their way to the host; no conversion where they have it.
template <class From, class To>
class RowsOut {
 public:
  RowsOut(Context& context, const From* values, std::size_t count) {
    if constexpr (std::is_same_v<From, To>) {
      rows_ = context.copies.start_out(values, count * sizeof(To));
    } else {
      converted_ = DeviceBuffer<To>(context.pool, count);
      convert(context.stream, values, converted_.data(), count);
      rows_ = context.copies.start_out(converted_.data(), count * sizeof(To));
    }
  }
  std::span<const std::byte> wait() { return rows_->wait(); }

 private:
  DeviceBuffer<To> converted_;  // outlives the copy
  std::unique_ptr<HostCopies::Arriving> rows_;
};

template <class T>
class HalvesOut final : public Download {
 public:
  HalvesOut(Context& context, const T* values, std::size_t count) : rows_(context, values, count) {}
  std::span<const Half> wait() override {
    const std::span<const std::byte> bytes = rows_.wait();
    static_assert(sizeof(Half) == sizeof(__half));
    return {reinterpret_cast<const Half*>(bytes.data()), bytes.size() / sizeof(Half)};
  }

 private:
  RowsOut<T, __half> rows_;
};

}  // namespace

template <class T>
std::unique_ptr<Download> CudaBackend<T>::start_download(const Tensor& from) {
  return std::make_unique<HalvesOut<T>>(context_, static_cast<const T*>(data<T>(from)), from.rows * from.cols);
}

template <class T>
void CudaBackend<T>::download(const Tensor& from, std::span<Half> values) {
  require(values.size() == from.rows * from.cols, "download");
  std::ranges::copy(start_download(from)->wait(), values.begin());
}

template <class T>
void CudaBackend<T>::download(const Tensor& from, std::span<float> values) {
  require(values.size() == from.rows * from.cols, "download");
  RowsOut<T, float> rows(context_, static_cast<const T*>(data<T>(from)), values.size());
  std::memcpy(values.data(), rows.wait().data(), values.size_bytes());
}

template <class T>
void CudaBackend<T>::embedding(const Weight& table, std::span<const std::uint32_t> ids, Tensor& out) {
  require(out.rows == ids.size() && out.cols == table.cols, "embedding");
  require(std::all_of(ids.begin(), ids.end(), [&](std::uint32_t id) { return id < table.rows; }), "embedding (id)");
  const auto rows = on_device(ids);
  gather_rows(context_.stream, matrix<T>(table), rows.data(), ids.size(), narrow(table.cols), data<T>(out));
}

template <class T>
void CudaBackend<T>::linear(const Tensor& x, const Weight& w, const Weight* bias, Tensor& out) {
  require(x.cols == w.cols && out.rows == x.rows && out.cols == w.rows, "linear");
  require(bias == nullptr || bias->cols == w.rows, "linear (bias)");
  const T* shift = bias == nullptr ? nullptr : matrix<T>(*bias);
  context_.copies.compute([&] {
    if (x.rows <= kGemvRows) {
      gemv<T, T>(context_.stream, context_.device, data<T>(x), matrix<T>(w), x.rows, narrow(w.rows), narrow(w.cols),
                 {.bias = shift}, data<T>(out));
    } else {
      context_.gemm.multiply<T, T>(context_.stream, data<T>(x), matrix<T>(w), x.rows, w.rows, w.cols, {.bias = shift},
                                   data<T>(out));
    }
  });
}

template <class T>
void CudaBackend<T>::layer_norm(const Tensor& x, const Weight& gamma, const Weight& beta, float epsilon, Tensor& out) {
  require(gamma.cols == x.cols && beta.cols == x.cols && out.rows == x.rows && out.cols == x.cols, "layer_norm");
  norm<T>(context_.stream, data<T>(x), full<T>(gamma), full<T>(beta), epsilon, x.rows, narrow(x.cols), data<T>(out));
}

template <class T>
void CudaBackend<T>::rms_norm(const Tensor& x, const Weight& gamma, float epsilon, Tensor& out) {
  require(gamma.cols == x.cols && out.rows == x.rows && out.cols == x.cols, "rms_norm");
  norm<T>(context_.stream, data<T>(x), full<T>(gamma), nullptr, epsilon, x.rows, narrow(x.cols), data<T>(out));
}

template <class T>
void CudaBackend<T>::rotate(Tensor& x, std::span<const std::uint32_t> positions, const Weight& inverse_frequencies,
                            float magnitude) {
  const std::size_t half = inverse_frequencies.cols;
  require(positions.size() == x.rows && x.cols % (2 * half) == 0, "rotate");
  const auto at = on_device(positions);
  cuda::rotate(context_.stream, data<T>(x), at.data(), {full<T>(inverse_frequencies), magnitude}, x.rows,
               narrow(x.cols), x.cols, narrow(half));
}

template <class T>
void CudaBackend<T>::relu(Tensor& x) {
  cuda::relu(context_.stream, data<T>(x), x.rows * x.cols);
}

template <class T>
void CudaBackend<T>::swiglu(Tensor& gate, const Tensor& up) {
  require(gate.rows == up.rows && gate.cols == up.cols, "swiglu");
  T* to = data<T>(gate);
  cuda::swiglu<T>(context_.stream, to, data<T>(up), gate.cols, narrow(gate.cols), gate.rows, to);
}

template <class T>
void CudaBackend<T>::add(Tensor& x, const Tensor& y) {
  require(x.rows == y.rows && x.cols == y.cols, "add");
  cuda::add<T>(context_.stream, data<T>(x), data<T>(y), x.rows * x.cols);
}

template <class T>
void CudaBackend<T>::round_to_half(Tensor& x) {
  if constexpr (!std::is_same_v<T, __half>) cuda::round_to_half(context_.stream, data<T>(x), x.rows * x.cols);
}

template <class T>
void CudaBackend<T>::select_rows(const Tensor& x, std::span<const std::uint32_t> rows, Tensor& out) {
  require(out.rows == rows.size() && out.cols == x.cols, "select_rows");
  require(std::all_of(rows.begin(), rows.end(), [&](std::uint32_t row) { return row < x.rows; }), "select_rows (row)");
  const auto chosen = on_device(rows);
  gather_rows<T>(context_.stream, data<T>(x), chosen.data(), rows.size(), narrow(x.cols), data<T>(out));
}

template <class T>
void CudaBackend<T>::causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionShape shape,
                                      std::span<const std::uint32_t> lengths, Tensor& out) {
  std::vector<std::uint32_t> starts{0};
  for (const std::uint32_t length : lengths) starts.push_back(starts.back() + length);
  const std::size_t rows = starts.back(), q_cols = std::size_t{shape.heads} * shape.head_dim,
                    kv_cols = std::size_t{shape.kv_heads} * shape.head_dim;
  require(q.rows == rows && k.rows == rows && v.rows == rows && out.rows == rows, "causal_attention (lengths)");
  require(q.cols == q_cols && out.cols == q_cols && k.cols == kv_cols && v.cols == kv_cols &&
              shape.heads % shape.kv_heads == 0 && shape.head_dim <= 256,
          "causal_attention");
  if (rows == 0) return;
  const auto device_starts = on_device(starts);
  PrefillQuery<T> query;
  query.q = data<T>(q);
  query.k = data<T>(k);
  query.v = data<T>(v);
  query.out = data<T>(out);
  query.rows = rows;
  query.q_stride = query.out_stride = q_cols;
  query.kv_stride = kv_cols;
  query.starts = device_starts.data();
  query.sequences = lengths.size();
  query.longest = *std::max_element(lengths.begin(), lengths.end());
  query.heads = shape.heads;
  query.kv_heads = shape.kv_heads;
  query.d = shape.head_dim;
  context_.copies.compute([&] { attend_prompts(context_, query); });
}

template class CudaBackend<__half>;
template class CudaBackend<__nv_bfloat16>;
template DeviceBuffer<__half> load_values(Context&, const StoredTensor&);
template DeviceBuffer<__nv_bfloat16> load_values(Context&, const StoredTensor&);
template DeviceBuffer<float> load_values(Context&, const StoredTensor&);

}  // namespace csdsim::host::cuda
