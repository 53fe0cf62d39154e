// Device functions of the kernels: conversions, warp reductions and instructions that C++ cannot express. A test that
// runs kernels on the CPU defines CSDSIM_CUDA_EMULATION and provides its own instructions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace csdsim::host::cuda {

template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

/// Packs two values for the tensor cores: `low` in the lower 16 bits.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  const T halves[2] = {from_float<T>(low), from_float<T>(high)};
  std::uint32_t word;
  memcpy(&word, halves, sizeof word);
  return word;
}

/// W consecutive values that a thread reads or writes at once: eight of 16 bits are its widest access.
template <class T, std::uint32_t W>
struct alignas(W == 8 ? 16 : alignof(T)) Piece {
  T values[W];
};
template <class T>
using Octet = Piece<T, 8>;

template <std::uint32_t W, class T>
__device__ __forceinline__ Piece<T, W> read_piece(const T* from) {
  return *reinterpret_cast<const Piece<T, W>*>(from);
}
template <std::uint32_t W, class T>
__device__ __forceinline__ void write_piece(T* to, const Piece<T, W>& piece) {
  *reinterpret_cast<Piece<T, W>*>(to) = piece;
}

}  // namespace csdsim::host::cuda

#ifndef CSDSIM_CUDA_EMULATION
namespace csdsim::host::cuda {

/// The dynamic shared memory of the block, aligned to 1,024 bytes if the kernel requested 1,024 more bytes.
template <class T>
__device__ __forceinline__ T* block_memory() {
  extern __shared__ __align__(16) unsigned char shared[];
  return reinterpret_cast<T*>(shared);
}

template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int lane) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, lane);
}

/// Waits for all lanes of the warp; what they wrote and read before is done.
__device__ __forceinline__ void synchronize_warp() { __syncwarp(); }

/// The four bytes that `selector` chooses from the eight bytes (low, high).
__device__ __forceinline__ std::uint32_t select_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  return __byte_perm(low, high, selector);
}

/// c += a b on tensor cores: a 16 x 16, b 16 x 8, c 16 x 8. With g = lane / 4 and t = lane % 4 a thread holds
/// a[0]: row g, columns 2t, 2t+1; a[1]: row g + 8; a[2], a[3]: the same eight columns on; b0: rows 2t, 2t+1 of column
/// g; b1: eight rows on; c[0], c[1]: row g, columns 2t, 2t+1; c[2], c[3]: row g + 8. From sm_80.
template <class T>
__device__ __forceinline__ void multiply_tile(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                              std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(T) == 2 && __is_same(T, __half)) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#endif
}

/// Loads four 8 x 8 matrices of 16-bit values; lane i gives the address of row i % 8 of matrix i / 8. Result m holds
/// row lane / 4, columns 2 (lane % 4) and 2 (lane % 4) + 1 of matrix m or of its transpose.
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// Starts a copy of 16 bytes to shared memory, or writes zeros there. Asynchronous from sm_80, a plain copy below. For
/// data that this multiprocessor reads once.
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid) {
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(shared) = valid ? *static_cast<const uint4*>(global) : uint4{0, 0, 0, 0};
#endif
}
/// The same for data that other blocks of this multiprocessor also read.
__device__ __forceinline__ void copy_async_cached(void* shared, const void* global, bool valid) {
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(shared) = valid ? *static_cast<const uint4*>(global) : uint4{0, 0, 0, 0};
#endif
}
/// Ends a group of copies.
__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until at most the newest `kGroups` groups of this thread are in flight.
template <int kGroups>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}

}  // namespace csdsim::host::cuda
#endif

namespace csdsim::host::cuda {

__device__ __forceinline__ float warp_sum(float value) {
  for (int lane = 16; lane > 0; lane /= 2) value += shuffle_xor(value, lane);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
  for (int lane = 16; lane > 0; lane /= 2) value = fmaxf(value, shuffle_xor(value, lane));
  return value;
}

/// Returns the sum over the block to every thread. `scratch` holds one float per warp; reuse it only after a barrier.
__device__ __forceinline__ float block_sum(float value, float* scratch) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += scratch[warp];
  return sum;
}

}  // namespace csdsim::host::cuda
