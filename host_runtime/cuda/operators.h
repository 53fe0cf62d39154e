// The operators as plain functions on device pointers; each puts its kernels into a stream and returns. T is __half or
// __nv_bfloat16. Shapes are preconditions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "host_runtime/cuda/device.h"
#include "host_runtime/cuda/memory.h"

namespace csdsim::host::cuda {

/// out [count][cols] = table[rows[i]] (+ shift[shift_rows[i] + shift_offset] where shift is given).
template <class T>
void gather_rows(const Stream& stream, const T* table, const std::uint32_t* rows, std::size_t count, std::uint32_t cols,
                 T* out, const T* shift = nullptr, const std::uint32_t* shift_rows = nullptr,
                 std::uint32_t shift_offset = 0);

/// out = norm(x): LayerNorm with beta, RMSNorm without. gamma and beta are fp32. The residual of x was added by the
/// product before it (Epilogue).
template <class T>
void norm(const Stream& stream, const T* x, const float* gamma, const float* beta, float epsilon, std::size_t rows,
          std::uint32_t cols, T* out);

/// RMSNorm in place of every head of q and of k, whose rows [q | k | ...] are `stride` apart; d elements are at most
/// 256. gammas [d] are fp32.
template <class T>
void norm_heads(const Stream& stream, T* rows, std::size_t stride, std::size_t count, std::uint32_t q_heads,
                std::uint32_t k_heads, std::uint32_t d, const float* q_gamma, const float* k_gamma, float epsilon);

/// Rotary positions: element i of a head turns with element i + d / 2 by position * frequency[i], and both are
/// multiplied by `magnitude` (YaRN). Without frequencies nothing turns.
struct Rotation {
  const float* frequency = nullptr;
  float magnitude = 1;
};

/// Applies rotary positions in place to the first `cols` elements of rows that are `stride` apart; `half` is half of a
/// head.
template <class T>
void rotate(const Stream& stream, T* x, const std::uint32_t* positions, const Rotation& rotation, std::size_t rows,
            std::uint32_t cols, std::size_t stride, std::uint32_t half);

/// The shape of caches [slot][kv head][capacity][d] and of the heads that read them.
struct CacheShape {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t d = 0;
  std::uint32_t capacity = 0;
};

/// For one row [q | k | v] per slot: rotates q in place and k, appends k and v at positions[i].
template <class T>
void append(const Stream& stream, T* qkv, const std::uint32_t* positions, const Rotation& rotation, std::size_t slots,
            const CacheShape& shape, T* keys, T* values);

/// Copies the parts of rows [q | k | v] to rows of their own; rotates q and k to positions[i]. The capacity of the
/// shape is not used.
template <class T>
void split_rows(const Stream& stream, const T* qkv, const std::uint32_t* positions, const Rotation& rotation,
                std::size_t rows, const CacheShape& shape, T* q, T* k, T* v);

/// Stores rows of k and v, row_stride apart, in the given caches of one slot from position `first` on.
template <class T>
void store(const Stream& stream, const T* k, const T* v, std::size_t row_stride, std::size_t rows, std::uint32_t first,
           const CacheShape& shape, T* keys, T* values);

template <class T>
void relu(const Stream& stream, T* x, std::size_t count);
/// out [rows][cols] = silu(gate) * up, whose rows are `stride` apart.
template <class T>
void swiglu(const Stream& stream, const T* gate, const T* up, std::size_t stride, std::uint32_t cols, std::size_t rows,
            T* out);
template <class T>
void add(const Stream& stream, T* x, const T* y, std::size_t count);
template <class T>
void round_to_half(const Stream& stream, T* x, std::size_t count);
/// Between float, __half and __nv_bfloat16.
template <class From, class To>
void convert(const Stream& stream, const From* from, To* to, std::size_t count);
/// Reads all values, so that a cache holds them and nothing else. `sink` is one word that is written by chance.
void read_values(const Stream& stream, const std::byte* values, std::size_t bytes, std::uint32_t* sink);

/// What is done with an output row after the product; a part that is not set is skipped.
template <class T, class Out>
struct Epilogue {
  const T* bias = nullptr;
  const Out* residual = nullptr;  ///< may be the output itself
  bool relu = false;              ///< before the residual
};

/// Rows that gemv() takes at most.
inline constexpr std::size_t kGemvRows = 8;

/// out [rows][n] = x [rows][k] w [n][k]^T, rows <= kGemvRows, accumulated in fp32. Out is T or float.
template <class T, class Out>
void gemv(const Stream& stream, const DeviceInfo& device, const T* x, const T* w, std::size_t rows, std::uint32_t n,
          std::uint32_t k, const Epilogue<T, Out>& epilogue, Out* out);

/// out [rows][n] = silu(x gate^T) * (x up^T) with w [2 n][k], first the rows of the gate, then those of up, whose
/// biases [2 n] may be null; rows <= kGemvRows. Gate and up are not rounded before the product.
template <class T>
void gated_gemv(const Stream& stream, const DeviceInfo& device, const T* x, const T* w, std::size_t rows,
                std::uint32_t n, std::uint32_t k, const T* bias, T* out);

/// Attention of one token per sequence. q and out rows [heads * d] are q_stride and out_stride apart.
template <class T, class Out = T>
struct DecodeQuery {
  const T* q = nullptr;
  std::size_t q_stride = 0;
  Out* out = nullptr;
  std::size_t out_stride = 0;
  std::size_t sequences = 0;
  const T* keys = nullptr;  ///< caches of slot 0
  const T* values = nullptr;
  const std::uint32_t* slots = nullptr;          ///< slots of the sequences; without, sequence i is in slot i
  const std::uint32_t* lengths = nullptr;        ///< tokens to attend to, the current one included
  const std::uint32_t* chosen = nullptr;         ///< [sequences][chosen_lists][chosen_stride], instead of all
  const std::uint32_t* chosen_counts = nullptr;  ///< [sequences][chosen_lists]
  std::uint32_t chosen_lists = 0;                ///< 1: one list for all KV heads; 0: one list per KV head
  std::uint32_t chosen_stride = 0;
  float2* softmax = nullptr;  ///< where given, takes maximum and sum of exp(score - maximum), [sequences][heads]
};

/// Keys and values are read once for the query heads that share them. Blocks share the tokens of all sequences evenly:
/// a long one is split into more parts than a short one. `longest` bounds the lengths (or counts); with `splits` = 0 it
/// determines how many blocks there are, else there are `splits` for each sequence and head. Workspace comes from
/// `pool`. d <= 256. T, Out: __half and __half or float, __nv_bfloat16 twice.
template <class T, class Out>
void decode_attention(const Stream& stream, DevicePool& pool, const DeviceInfo& device,
                      const DecodeQuery<T, Out>& query, const CacheShape& shape, std::uint32_t longest,
                      std::uint32_t splits = 0);

/// Dense causal attention over sequences whose rows are starts[i] to starts[i + 1]. q, out [rows][heads * d], k and v
/// [rows][kv_heads * d], rows *_stride apart.
template <class T>
struct PrefillQuery {
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  T* out = nullptr;
  std::size_t rows = 0;
  std::size_t q_stride = 0;
  std::size_t kv_stride = 0;
  std::size_t out_stride = 0;
  const std::uint32_t* starts = nullptr;  ///< [sequences + 1], on the device
  std::size_t sequences = 0;
  std::uint32_t longest = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t d = 0;  ///< at most 256
};

/// The own kernels; `automatic` takes the one for the newest GPU that supports the shape.
enum class PrefillKernel : std::uint8_t { automatic, generic, tile, hopper };

/// CudaError if the kernel asked for does not support the shape (see supports_prefill).
template <class T>
void prefill_attention(const Stream& stream, const DeviceInfo& device, const PrefillQuery<T>& query,
                       PrefillKernel kernel = PrefillKernel::automatic);
bool supports_prefill(PrefillKernel kernel, const DeviceInfo& device, std::uint32_t d);

/// The elements at which the rows of each sequence begin, and the end, [3][sequences + 1]: of q, of k and v, of out.
/// The lengths, [sequences].
template <class T>
void locate_rows(const Stream& stream, const PrefillQuery<T>& query, std::int64_t* offsets, std::int32_t* lengths);

}  // namespace csdsim::host::cuda
