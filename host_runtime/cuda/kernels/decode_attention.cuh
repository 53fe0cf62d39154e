// Attention of one query token per sequence over its cache: keys and values are read once for all query heads that
// share them. The tokens of a head may be split over blocks, whose results are merged by their log-sum-exp.
#pragma once

#include "host_runtime/cuda/kernels/decode_parts.cuh"

namespace csdsim::host::cuda {

inline constexpr std::uint32_t kDecodeRows = 16;  ///< maximum number of query heads of the tensor-core kernel

inline constexpr std::uint32_t kDecodeDepth = 2;  ///< chunks in flight

/// Shared memory for chunks of 16 keys and values in flight. It is reused for output, maximum and sum of every row and
/// warp.
constexpr std::size_t decode_shared_bytes(std::uint32_t d) {
  const std::size_t ring = std::size_t{kDecodeDepth} * kDecodeWarps * kDecodeChunk * d * 2 * 2;
  const std::size_t merge = std::size_t{kDecodeWarps} * kDecodeRows * (d + 2) * 4;
  return ring > merge ? ring : merge;
}

/// Grid (parts, KV heads of a list); group <= 16; d = D if kWhole, otherwise a multiple of 8 from 64 to D, whose
/// missing elements count as 0 and are not read; q and caches aligned to 16 bytes; sm_80. A warp processes 16 tokens at
/// a time: the scores of all query heads are one tile of 16 x 16 in registers, which is directly the left operand of
/// the product with the values. Each thread copies the parts of rows that it needs to its own part of shared memory,
/// one chunk ahead, in the order of d that the tensor cores need (see gemv_tile_kernel).
template <class T, class Out, std::uint32_t D, bool kWhole>
__global__ void __launch_bounds__(32 * kDecodeWarps) decode_tile_kernel(DecodeArguments<T, Out> a) {
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const BlockRange range(a);
  if (range.parts == 0) return;  // uniform over the block
  const std::uint32_t kv_head = range.head_block, sequence = range.sequence;
  const std::size_t cache = cache_of(a, sequence, kv_head);
  const T* keys = a.keys + cache;
  const T* values = a.values + cache;
  const std::uint32_t d = kWhole ? D : a.d;
  const auto inside_head = [&](std::uint32_t element) { return kWhole || element < d; };

  uint4 q[2][D / 32];
#pragma unroll
  for (std::uint32_t half = 0; half < 2; ++half) {
    const std::uint32_t row = g + 8 * half;
    const T* from = a.q + sequence * a.q_stride + std::size_t{kv_head * a.group + min(row, a.group - 1)} * d + t * 8;
#pragma unroll
    for (std::uint32_t i = 0; i < D / 32; ++i) {
      const bool valid = row < a.group && inside_head(32 * i + t * 8);
      q[half][i] = valid ? *reinterpret_cast<const uint4*>(from + 32 * i) : uint4{0, 0, 0, 0};
    }
  }

  constexpr std::uint32_t kKeyPieces = D / 16, kPieces = 2 * kKeyPieces;  // 16-byte copies per thread and chunk
  uint4* const ring = block_memory<uint4>() + threadIdx.x;
  const auto place = [&](std::uint32_t chunk, std::uint32_t piece) {
    return ring + (chunk % kDecodeDepth * kPieces + piece) * 32 * kDecodeWarps;
  };
  const auto first_token = [&](std::uint32_t chunk) {
    return range.begin + (chunk * kDecodeWarps + warp) * kDecodeChunk;
  };
  const auto start = [&](std::uint32_t chunk) {
    const std::uint32_t first = first_token(chunk);
    if (first < range.end) {
#pragma unroll
      for (std::uint32_t tile = 0; tile < 2; ++tile) {
        const T* from = keys + range.row(first + 8 * tile + g) * d + t * 8;
#pragma unroll
        for (std::uint32_t i = 0; i < D / 32; ++i) {
          const bool valid = inside_head(32 * i + t * 8);
          copy_async(place(chunk, tile * D / 32 + i), valid ? from + 32 * i : from, valid);
        }
      }
#pragma unroll
      for (std::uint32_t r = 0; r < 4; ++r) {
        const T* from = values + range.row(first + 2 * t + r % 2 + r / 2 * 8) * d + g * 8;
#pragma unroll
        for (std::uint32_t h = 0; h < D / 64; ++h) {
          const bool valid = inside_head(64 * h + g * 8);
          copy_async(place(chunk, kKeyPieces + r * D / 64 + h), valid ? from + 64 * h : from, valid);
        }
      }
    }
    commit_copies();  // even without a copy, because groups are counted
  };
  for (std::uint32_t chunk = 0; chunk + 1 < kDecodeDepth; ++chunk) start(chunk);

  // Column g of tile (h, j) of the values is element 64 h + 8 g + j.
  float o[D / 64][8][4] = {};
  float maximum[2] = {-FLT_MAX, -FLT_MAX}, sum[2] = {0, 0};
  for (std::uint32_t chunk = 0; first_token(chunk) < range.end; ++chunk) {
    const std::uint32_t first = first_token(chunk);
    start(chunk + kDecodeDepth - 1);
    wait_for_copies<kDecodeDepth - 1>();
    float s[2][4] = {};
#pragma unroll
    for (std::uint32_t tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (std::uint32_t i = 0; i < D / 32; ++i) {
        const uint4 k = *place(chunk, tile * D / 32 + i);
        const std::uint32_t even[4] = {q[0][i].x, q[1][i].x, q[0][i].y, q[1][i].y};
        multiply_tile<T>(s[tile], even, k.x, k.y);
        const std::uint32_t odd[4] = {q[0][i].z, q[1][i].z, q[0][i].w, q[1][i].w};
        multiply_tile<T>(s[tile], odd, k.z, k.w);
      }
#pragma unroll
      for (std::uint32_t e = 0; e < 4; ++e) {
        const bool inside = first + 8 * tile + 2 * t + e % 2 < range.end;
        s[tile][e] = inside ? s[tile][e] * a.scale : -FLT_MAX;
      }
    }
#pragma unroll
    for (std::uint32_t half = 0; half < 2; ++half) {
      float top = fmaxf(fmaxf(s[0][2 * half], s[0][2 * half + 1]), fmaxf(s[1][2 * half], s[1][2 * half + 1]));
      top = fmaxf(top, shuffle_xor(top, 1));
      top = fmaxf(fmaxf(top, shuffle_xor(top, 2)), maximum[half]);
      const float fade = expf(maximum[half] - top);
      maximum[half] = top;
      sum[half] *= fade;
#pragma unroll
      for (std::uint32_t tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (std::uint32_t e = 2 * half; e < 2 * half + 2; ++e) {
          const bool inside = first + 8 * tile + 2 * t + e % 2 < range.end;
          s[tile][e] = inside ? expf(s[tile][e] - top) : 0.0f;
          sum[half] += s[tile][e];
        }
      }
#pragma unroll
      for (std::uint32_t h = 0; h < D / 64; ++h) {
#pragma unroll
        for (std::uint32_t j = 0; j < 8; ++j) {
          o[h][j][2 * half] *= fade;
          o[h][j][2 * half + 1] *= fade;
        }
      }
    }
    const std::uint32_t p[4] = {pack<T>(s[0][0], s[0][1]), pack<T>(s[0][2], s[0][3]), pack<T>(s[1][0], s[1][1]),
                                pack<T>(s[1][2], s[1][3])};
#pragma unroll
    for (std::uint32_t h = 0; h < D / 64; ++h) {
      const auto value = [&](std::uint32_t r) { return *place(chunk, kKeyPieces + r * D / 64 + h); };
      const uint4 v0 = value(0), v1 = value(1), v8 = value(2), v9 = value(3);
      const auto multiply = [&](std::uint32_t j, std::uint32_t w0, std::uint32_t w1, std::uint32_t w8,
                                std::uint32_t w9) {
        multiply_tile<T>(o[h][j], p, select_bytes(w0, w1, 0x5410), select_bytes(w8, w9, 0x5410));
        multiply_tile<T>(o[h][j + 1], p, select_bytes(w0, w1, 0x7632), select_bytes(w8, w9, 0x7632));
      };
      multiply(0, v0.x, v1.x, v8.x, v9.x);
      multiply(2, v0.y, v1.y, v8.y, v9.y);
      multiply(4, v0.z, v1.z, v8.z, v9.z);
      multiply(6, v0.w, v1.w, v8.w, v9.w);
    }
  }
  wait_for_copies<0>();
  __syncthreads();

  // Four threads hold the columns of a row, and parts of its sum.
  float* outs = block_memory<float>();
  float* maxima = outs + kDecodeWarps * kDecodeRows * D;
  float* sums = maxima + kDecodeWarps * kDecodeRows;
#pragma unroll
  for (std::uint32_t half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    const std::uint32_t row = warp * kDecodeRows + g + 8 * half;
    if (t == 0) {
      maxima[row] = maximum[half];
      sums[row] = sum[half];
    }
#pragma unroll
    for (std::uint32_t h = 0; h < D / 64; ++h) {
#pragma unroll
      for (std::uint32_t e = 0; e < 2; ++e) {
#pragma unroll
        for (std::uint32_t j = 0; j < 8; ++j) {
          outs[row * D + 64 * h + 8 * (2 * t + e) + j] = o[h][j][2 * half + e];
        }
      }
    }
  }
  __syncthreads();
  for (std::uint32_t at = threadIdx.x; at < a.group * d; at += blockDim.x) {
    const std::uint32_t row = at / d, i = at % d;
    float top = -FLT_MAX, total = 0, value = 0;
    for (std::uint32_t w = 0; w < kDecodeWarps; ++w) top = fmaxf(top, maxima[w * kDecodeRows + row]);
    for (std::uint32_t w = 0; w < kDecodeWarps; ++w) {
      const float fade = expf(maxima[w * kDecodeRows + row] - top);
      total += sums[w * kDecodeRows + row] * fade;
      value += outs[(w * kDecodeRows + row) * D + i] * fade;
    }
    store_share(a, range, kv_head * a.group + row, i, value, top, total);
  }
}

inline constexpr std::uint32_t kGenericElements = 8;  ///< elements of a head per lane: heads of up to 256 elements

/// A warp processes tokens from `first` on in steps of `stride`. A lane holds elements lane, lane + 32, ... of query
/// and output.
template <class T, class Row>
__device__ __forceinline__ void attend_by_warp(const T* query, const T* keys, const T* values, std::uint32_t d,
                                               float scale, std::uint32_t first, std::uint32_t end,
                                               std::uint32_t stride, Row row, float (&o)[kGenericElements],
                                               float& maximum, float& sum) {
  const std::uint32_t lane = threadIdx.x % 32;
  float q[kGenericElements];
#pragma unroll
  for (std::uint32_t j = 0; j < kGenericElements; ++j) {
    q[j] = lane + 32 * j < d ? to_float(query[lane + 32 * j]) : 0.0f;
    o[j] = 0;
  }
  maximum = -FLT_MAX;
  sum = 0;
  for (std::uint32_t token = first; token < end; token += stride) {
    const std::size_t at = row(token);
    float score = 0;
#pragma unroll
    for (std::uint32_t j = 0; j < kGenericElements; ++j) {
      if (lane + 32 * j < d) score += q[j] * to_float(keys[at + lane + 32 * j]);
    }
    score = warp_sum(score) * scale;
    const float top = fmaxf(maximum, score), fade = expf(maximum - top), weight = expf(score - top);
    maximum = top;
    sum = sum * fade + weight;
#pragma unroll
    for (std::uint32_t j = 0; j < kGenericElements; ++j) {
      o[j] *= fade;
      if (lane + 32 * j < d) o[j] += weight * to_float(values[at + lane + 32 * j]);
    }
  }
}

/// Merges the results of the warps of a block and calls `store(i, value, maximum, sum)` for element i.
template <class Store>
__device__ __forceinline__ void merge_warps(std::uint32_t d, const float (&o)[kGenericElements], float maximum,
                                            float sum, Store store) {
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* outs = block_memory<float>();
  float* maxima = outs + kDecodeWarps * d;
  float* sums = maxima + kDecodeWarps;
  for (std::uint32_t j = 0; j < kGenericElements; ++j) {
    if (lane + 32 * j < d) outs[warp * d + lane + 32 * j] = o[j];
  }
  if (lane == 0) {
    maxima[warp] = maximum;
    sums[warp] = sum;
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x) {
    float top = -FLT_MAX, total = 0, value = 0;
    for (std::uint32_t w = 0; w < kDecodeWarps; ++w) top = fmaxf(top, maxima[w]);
    for (std::uint32_t w = 0; w < kDecodeWarps; ++w) {
      const float fade = expf(maxima[w] - top);
      total += sums[w] * fade;
      value += outs[w * d + i] * fade;
    }
    store(i, value, top, total);
  }
}

/// Supports any d up to 256, any group and any GPU. Grid (parts, heads of a list).
template <class T, class Out>
__global__ void decode_generic_kernel(DecodeArguments<T, Out> a) {
  const BlockRange range(a);
  if (range.parts == 0) return;  // uniform over the block
  const std::uint32_t head = range.head_block, sequence = range.sequence, kv_head = head / a.group;
  const std::size_t cache = cache_of(a, sequence, kv_head);
  float o[kGenericElements], maximum, sum;
  attend_by_warp(
      a.q + sequence * a.q_stride + std::size_t{head} * a.d, a.keys + cache, a.values + cache, a.d, a.scale,
      range.begin + threadIdx.x / 32, range.end, kDecodeWarps, [&](std::uint32_t i) { return range.row(i) * a.d; }, o,
      maximum, sum);
  merge_warps(a.d, o, maximum, sum, [&](std::uint32_t i, float value, float top, float total) {
    store_share(a, range, head, i, value, top, total);
  });
}

/// Merges the partial results of lists with several parts. Grid (heads, sequences).
template <class T, class Out>
__global__ void merge_parts_kernel(DecodeArguments<T, Out> a) {
  const std::uint32_t head = blockIdx.x, sequence = blockIdx.y, heads = a.blocks_per_list * a.heads_per_block;
  const std::uint32_t own = sequence * a.lists_per_sequence + head / heads;
  const ListPart list = find_list(a, [&](std::uint32_t at, std::uint32_t, std::uint32_t) { return at == own; });
  if (list.parts == 1) return;  // its block has stored the row
  const auto place = [&](std::uint32_t part) { return std::size_t{list.first + part} * heads + head % heads; };
  float top = -FLT_MAX, total = 0;
  for (std::uint32_t part = 0; part < list.parts; ++part) top = fmaxf(top, a.partial_scale[place(part)].x);
  for (std::uint32_t part = 0; part < list.parts; ++part) {
    total += a.partial_scale[place(part)].y * expf(a.partial_scale[place(part)].x - top);
  }
  if (threadIdx.x == 0 && a.softmax != nullptr) {
    a.softmax[std::size_t{sequence} * gridDim.x + head] = float2{top, total};
  }
  for (std::uint32_t i = threadIdx.x; i < a.d; i += blockDim.x) {
    float value = 0;
    for (std::uint32_t part = 0; part < list.parts; ++part) {
      value += a.partial_out[place(part) * a.d + i] * expf(a.partial_scale[place(part)].x - top);
    }
    a.out[sequence * a.out_stride + std::size_t{head} * a.d + i] = from_float<Out>(total > 0 ? value / total : 0.0f);
  }
}

}  // namespace csdsim::host::cuda
