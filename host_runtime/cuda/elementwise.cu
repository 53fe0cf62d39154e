#include "host_runtime/cuda/kernels/elementwise.cuh"

#include <algorithm>

#include "host_runtime/cuda/kernels/append.cuh"
#include "host_runtime/cuda/launch.cuh"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kMostGridRows = 65535;

unsigned blocks(std::size_t values, unsigned threads) {
  return static_cast<unsigned>((values + threads - 1) / threads);
}

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

/// True if rows of such a length consist of aligned pieces of eight values. Null pointers are not used.
template <class... Pointers>
bool is_wide(std::size_t length, const Pointers*... pointers) {
  return length % 8 == 0 && (is_aligned(pointers) && ...);
}

template <class Function, class Out, class... In>
void map(const char* name, const Stream& stream, std::size_t rows, std::size_t cols, Rows<Out> out,
         Rows<const In>... in) {
  const bool wide = cols % 8 == 0 && is_wide(out.stride, out.data) && (is_wide(in.stride, in.data) && ...);
  launch(name, wide ? map_kernel<8, Function, Out, In...> : map_kernel<1, Function, Out, In...>,
         dim3(blocks(wide ? cols / 8 : cols, kThreads), static_cast<unsigned>(std::min(rows, kMostGridRows))), kThreads,
         0, stream, out, rows, cols, in...);
}

/// One row of `count` values.
template <class T>
Rows<T> flat(T* values) {
  return {values, 0};
}

/// Blocks of `threads` threads for rows of `items` threads each.
dim3 row_grid(std::size_t rows, std::size_t items, unsigned threads) {
  return dim3(static_cast<unsigned>(rows), blocks(items, threads));
}

}  // namespace

template <class T>
void gather_rows(const Stream& stream, const T* table, const std::uint32_t* rows, std::size_t count, std::uint32_t cols,
                 T* out, const T* shift, const std::uint32_t* shift_rows, std::uint32_t shift_offset) {
  const bool wide = is_wide(cols, table, out, shift);
  launch("gather_rows", wide ? gather_rows_kernel<T, 8> : gather_rows_kernel<T, 1>,
         row_grid(count, wide ? cols / 8 : cols, kThreads), kThreads, 0, stream, table, rows, shift, shift_rows,
         shift_offset, cols, out);
}

template <class T>
void norm(const Stream& stream, const T* x, const float* gamma, const float* beta, float epsilon, std::size_t rows,
          std::uint32_t cols, T* out) {
  const dim3 grid(static_cast<unsigned>(rows));
  if (is_wide(cols, x, gamma, beta, out) && cols <= kNormPieces * 8 * kNormThreads) {
    const unsigned threads = blocks(blocks(cols, 8 * kNormPieces), 32) * 32;
    launch("norm", beta != nullptr ? norm_kernel<T, true> : norm_kernel<T, false>, grid, threads,
           2 * threads / 32 * sizeof(float), stream, x, gamma, beta, epsilon, cols, out);
    return;
  }
  const std::size_t shared = (2 * kThreads / 32 + cols) * sizeof(float);
  launch("norm", beta != nullptr ? norm_any_kernel<T, true> : norm_any_kernel<T, false>, grid, kThreads, shared, stream,
         x, gamma, beta, epsilon, cols, out);
}

template <class T>
void norm_heads(const Stream& stream, T* rows, std::size_t stride, std::size_t count, std::uint32_t q_heads,
                std::uint32_t k_heads, std::uint32_t d, const float* q_gamma, const float* k_gamma, float epsilon) {
  launch("norm_heads", norm_heads_kernel<T>, row_grid(count, q_heads + k_heads, kHeadNormWarps), 32 * kHeadNormWarps, 0,
         stream, rows, stride, q_heads, q_heads + k_heads, d, q_gamma, k_gamma, epsilon);
}

template <class T>
void rotate(const Stream& stream, T* x, const std::uint32_t* positions, const Rotation& rotation, std::size_t rows,
            std::uint32_t cols, std::size_t stride, std::uint32_t half) {
  const bool wide = half % 8 == 0 && is_wide(stride, x, rotation.frequency);
  launch("rotate", wide ? rotate_kernel<T, 8> : rotate_kernel<T, 1>, row_grid(rows, cols / (wide ? 16 : 2), kThreads),
         kThreads, 0, stream, x, positions, rotation, cols / 2 / half, stride, half);
}

template <class T>
void append(const Stream& stream, T* qkv, const std::uint32_t* positions, const Rotation& rotation, std::size_t slots,
            const CacheShape& s, T* keys, T* values) {
  const bool wide = s.d % 16 == 0 && is_wide(s.d, qkv, rotation.frequency, keys, values);
  const std::size_t pairs = std::size_t{s.heads + 2 * s.kv_heads} * s.d / 2;
  constexpr unsigned threads = 128;
  launch("append", wide ? append_kernel<T, 8> : append_kernel<T, 1>, row_grid(slots, wide ? pairs / 8 : pairs, threads),
         threads, 0, stream, qkv, positions, rotation, s.heads, s.kv_heads, s.d, s.capacity, keys, values);
}

template <class T>
void split_rows(const Stream& stream, const T* qkv, const std::uint32_t* positions, const Rotation& rotation,
                std::size_t rows, const CacheShape& s, T* q, T* k, T* v) {
  const bool wide = s.d % 16 == 0 && is_wide(s.d, qkv, rotation.frequency, q, k, v);
  const std::size_t pairs = std::size_t{s.heads + 2 * s.kv_heads} * s.d / 2;
  launch("split_rows", wide ? split_kernel<T, 8> : split_kernel<T, 1>,
         row_grid(rows, wide ? pairs / 8 : pairs, kThreads), kThreads, 0, stream, qkv, positions, rotation, s.heads,
         s.kv_heads, s.d, q, k, v);
}

template <class T>
void store(const Stream& stream, const T* k, const T* v, std::size_t row_stride, std::size_t rows, std::uint32_t first,
           const CacheShape& s, T* keys, T* values) {
  const bool wide = s.d % 16 == 0 && is_wide(row_stride, k, v, keys, values);
  const std::size_t pairs = std::size_t{s.kv_heads} * s.d / 2;
  launch("store", wide ? store_kernel<T, 8> : store_kernel<T, 1>, row_grid(rows, wide ? pairs / 8 : pairs, kThreads),
         kThreads, 0, stream, k, v, row_stride, first, s.kv_heads, s.d, s.capacity, keys, values);
}

template <class T>
void relu(const Stream& stream, T* x, std::size_t count) {
  map<Rectify>("relu", stream, 1, count, flat(x), flat<const T>(x));
}

template <class T>
void swiglu(const Stream& stream, const T* gate, const T* up, std::size_t stride, std::uint32_t cols, std::size_t rows,
            T* out) {
  map<GatedSilu>("swiglu", stream, rows, cols, Rows<T>{out, cols}, Rows<const T>{gate, stride},
                 Rows<const T>{up, stride});
}

template <class T>
void add(const Stream& stream, T* x, const T* y, std::size_t count) {
  map<Sum>("add", stream, 1, count, flat(x), flat<const T>(x), flat(y));
}

template <class T>
void round_to_half(const Stream& stream, T* x, std::size_t count) {
  map<RoundToHalf>("round_to_half", stream, 1, count, flat(x), flat<const T>(x));
}

template <class From, class To>
void convert(const Stream& stream, const From* from, To* to, std::size_t count) {
  map<Identity>("convert", stream, 1, count, flat(to), flat(from));
}

void read_values(const Stream& stream, const std::byte* values, std::size_t bytes, std::uint32_t* sink) {
  constexpr unsigned kBlocks = 1024;
  if (bytes < sizeof(uint4)) return;
  launch("read_values", read_kernel, dim3(kBlocks), kThreads, 0, stream, reinterpret_cast<const uint4*>(values),
         bytes / sizeof(uint4), sink);
}

#define CSDSIM_INSTANTIATE(T)                                                                                        \
  template void gather_rows(const Stream&, const T*, const std::uint32_t*, std::size_t, std::uint32_t, T*, const T*, \
                            const std::uint32_t*, std::uint32_t);                                                    \
  template void norm(const Stream&, const T*, const float*, const float*, float, std::size_t, std::uint32_t, T*);    \
  template void norm_heads(const Stream&, T*, std::size_t, std::size_t, std::uint32_t, std::uint32_t, std::uint32_t, \
                           const float*, const float*, float);                                                       \
  template void rotate(const Stream&, T*, const std::uint32_t*, const Rotation&, std::size_t, std::uint32_t,         \
                       std::size_t, std::uint32_t);                                                                  \
  template void append(const Stream&, T*, const std::uint32_t*, const Rotation&, std::size_t, const CacheShape&, T*, \
                       T*);                                                                                          \
  template void store(const Stream&, const T*, const T*, std::size_t, std::size_t, std::uint32_t, const CacheShape&, \
                      T*, T*);                                                                                       \
  template void split_rows(const Stream&, const T*, const std::uint32_t*, const Rotation&, std::size_t,              \
                           const CacheShape&, T*, T*, T*);                                                           \
  template void relu(const Stream&, T*, std::size_t);                                                                \
  template void swiglu(const Stream&, const T*, const T*, std::size_t, std::uint32_t, std::size_t, T*);              \
  template void add(const Stream&, T*, const T*, std::size_t);                                                       \
  template void round_to_half(const Stream&, T*, std::size_t);                                                       \
  template void convert(const Stream&, const T*, float*, std::size_t);                                               \
  template void convert(const Stream&, const float*, T*, std::size_t);

CSDSIM_INSTANTIATE(__half)
CSDSIM_INSTANTIATE(__nv_bfloat16)
template void convert(const Stream&, const __half*, __nv_bfloat16*, std::size_t);
template void convert(const Stream&, const __nv_bfloat16*, __half*, std::size_t);

}  // namespace csdsim::host::cuda
