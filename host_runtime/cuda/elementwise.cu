#include "host_runtime/cuda/kernels/elementwise.cuh"

#include "host_runtime/cuda/launch.cuh"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {
namespace {

// Threads of a block that processes one row: more for longer rows, always whole warps.
unsigned row_threads(std::size_t cols) {
  return static_cast<unsigned>(cols >= 4096 ? 512 : cols >= 1024 ? 256 : cols >= 256 ? 128 : 64);
}

dim3 row_grid(std::size_t rows) { return dim3(static_cast<unsigned>(rows)); }

}  // namespace

template <class T>
void gather_rows(const Stream& stream, const T* table, const std::uint32_t* rows, std::size_t count, std::uint32_t cols,
                 T* out, const T* shift, const std::uint32_t* shift_rows, std::uint32_t shift_offset) {
  launch("gather_rows", gather_rows_kernel<T>, row_grid(count), row_threads(cols), 0, stream, table, rows, shift,
         shift_rows, shift_offset, cols, out);
}

template <class T>
void norm(const Stream& stream, T* x, const T* delta, const float* gamma, const float* beta, float epsilon,
          std::size_t rows, std::uint32_t cols, T* out) {
  const unsigned threads = row_threads(cols);
  const std::size_t shared = (2 * threads / 32 + cols) * sizeof(float);
  launch("norm", beta != nullptr ? norm_kernel<T, true> : norm_kernel<T, false>, row_grid(rows), threads, shared,
         stream, x, delta, gamma, beta, epsilon, cols, out);
}

template <class T>
void rotate(const Stream& stream, T* x, const std::uint32_t* positions, const float* frequency, std::size_t rows,
            std::uint32_t cols, std::size_t stride, std::uint32_t half) {
  launch("rotate", rotate_kernel<T>, row_grid(rows), row_threads(cols), 0, stream, x, positions, frequency, cols,
         stride, half);
}

template <class T>
void append(const Stream& stream, T* qkv, const std::uint32_t* positions, const float* frequency, std::size_t slots,
            const CacheShape& s, T* keys, T* values) {
  launch("append", append_kernel<T>, row_grid(slots), 512, 0, stream, qkv, positions, frequency, s.heads, s.kv_heads,
         s.d, s.capacity, keys, values);
}

template <class T>
void store(const Stream& stream, const T* k, const T* v, std::size_t row_stride, std::size_t rows, std::uint32_t first,
           const CacheShape& s, T* keys, T* values) {
  launch("store", store_kernel<T>, row_grid(rows), row_threads(s.kv_heads * s.d), 0, stream, k, v, row_stride, first,
         s.kv_heads, s.d, s.capacity, keys, values);
}

template <class T>
void relu(const Stream& stream, T* x, std::size_t count) {
  launch("relu", relu_kernel<T>, element_grid(count), 256, 0, stream, x, count);
}

template <class T>
void swiglu(const Stream& stream, const T* gate, const T* up, std::size_t stride, std::uint32_t cols, std::size_t rows,
            T* out) {
  launch("swiglu", swiglu_kernel<T>, element_grid(rows * cols), 256, 0, stream, gate, up, stride, cols, rows * cols,
         out);
}

template <class T>
void add(const Stream& stream, T* x, const T* y, std::size_t count) {
  launch("add", add_kernel<T>, element_grid(count), 256, 0, stream, x, y, count);
}

template <class T>
void round_to_half(const Stream& stream, T* x, std::size_t count) {
  launch("round_to_half", round_to_half_kernel<T>, element_grid(count), 256, 0, stream, x, count);
}

template <class From, class To>
void convert(const Stream& stream, const From* from, To* to, std::size_t count) {
  launch("convert", convert_kernel<From, To>, element_grid(count), 256, 0, stream, from, to, count);
}

template <class T>
void add_bias(const Stream& stream, T* x, const float* bias, std::uint32_t cols, std::size_t count) {
  launch("add_bias", add_bias_kernel<T>, element_grid(count), 256, 0, stream, x, bias, cols, count);
}

#define CSDSIM_INSTANTIATE(T)                                                                                          \
  template void gather_rows(const Stream&, const T*, const std::uint32_t*, std::size_t, std::uint32_t, T*, const T*,   \
                            const std::uint32_t*, std::uint32_t);                                                      \
  template void norm(const Stream&, T*, const T*, const float*, const float*, float, std::size_t, std::uint32_t, T*);  \
  template void rotate(const Stream&, T*, const std::uint32_t*, const float*, std::size_t, std::uint32_t, std::size_t, \
                       std::uint32_t);                                                                                 \
  template void append(const Stream&, T*, const std::uint32_t*, const float*, std::size_t, const CacheShape&, T*, T*); \
  template void store(const Stream&, const T*, const T*, std::size_t, std::size_t, std::uint32_t, const CacheShape&,   \
                      T*, T*);                                                                                         \
  template void relu(const Stream&, T*, std::size_t);                                                                  \
  template void swiglu(const Stream&, const T*, const T*, std::size_t, std::uint32_t, std::size_t, T*);                \
  template void add(const Stream&, T*, const T*, std::size_t);                                                         \
  template void round_to_half(const Stream&, T*, std::size_t);                                                         \
  template void convert(const Stream&, const T*, float*, std::size_t);                                                 \
  template void convert(const Stream&, const float*, T*, std::size_t);                                                 \
  template void add_bias(const Stream&, T*, const float*, std::uint32_t, std::size_t);

CSDSIM_INSTANTIATE(__half)
CSDSIM_INSTANTIATE(__nv_bfloat16)
template void convert(const Stream&, const __half*, __nv_bfloat16*, std::size_t);
template void convert(const Stream&, const __nv_bfloat16*, __half*, std::size_t);

}  // namespace csdsim::host::cuda
