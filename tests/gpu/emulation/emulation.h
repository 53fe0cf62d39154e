// Runs CUDA kernels on the CPU, so that their logic can be tested without a GPU: the threads of a block are fibers that
// meet at barriers. Which warp runs next is drawn: one may run far ahead of the others, as on a GPU. Asynchronous
// copies and products take effect at any moment from their start to the wait for them, so that a kernel which lacks a
// barrier or a wait fails its test. Include this before any kernel. Blocks run one after another: this says nothing
// about speed or about races between blocks.
#pragma once

#define CSDSIM_CUDA_EMULATION

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "tests/gpu/emulation/streams.h"

#undef __global__
#undef __device__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

namespace emulation {

/// Runs `body` for every thread of every block. Throws std::runtime_error if threads wait for one another for ever.
void launch(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body);

struct Position {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
const Position& position();
void* shared_memory();
std::size_t thread_index();

/// Lets other threads run; for waiting on something that they do.
void yield();
/// Call when a thread that yields may be able to continue.
void made_progress();
/// Returns when `count` threads of the block have called it with the same id.
void barrier(int id, std::size_t count);

/// Copies that a thread starts and waits for in groups. Each is carried out at its start or at the wait for its group.
void start_copy(std::function<void()> copy);
void end_copies();
void wait_for_copies(std::size_t newest_groups);

/// Products that a warpgroup (128 threads) starts and waits for in groups. A group is carried out, after those before
/// it, at its start or at the wait for it: all threads of the warpgroup do the same.
void begin_products();
/// Throws std::runtime_error without begin_products() before the first product of a group.
void start_product(std::function<void()> product);
void end_products();
void wait_for_products(std::size_t newest_groups);

/// A copy of the block that no thread waits for in groups: carried out at any time, in any order.
void start_block_copy(std::function<void()> copy);

/// What `bytes` bytes every thread of a group of `size` (a warp: 32) brought, in the order of threads.
class Exchange {
 public:
  Exchange(const void* mine, std::size_t bytes, std::size_t size);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  template <class T>
  const T& get(std::size_t thread) const {
    return *reinterpret_cast<const T*>(first_ + thread * kBytes);
  }

  static constexpr std::size_t kBytes = 256;  ///< that a thread can bring

 private:
  const unsigned char* first_;  ///< values of the group
  std::size_t size_;
};

/// The shared memory that a kernel was allowed.
template <class Kernel>
std::size_t& allowed_shared_bytes(Kernel* kernel) {
  static std::map<Kernel*, std::size_t> allowed;
  return allowed.try_emplace(kernel, std::size_t{48} << 10).first->second;
}
}  // namespace emulation

#define threadIdx (emulation::position().thread)
#define blockIdx (emulation::position().block)
#define blockDim (emulation::position().block_size)
#define gridDim (emulation::position().grid_size)
#define __syncthreads() emulation::barrier(0, emulation::position().block_size.x)

using std::max;
using std::min;

namespace csdsim::host::cuda {

template <class T>
T* block_memory() {
  return static_cast<T*>(emulation::shared_memory());
}

template <class T>
T shuffle_xor(T value, int lane) {
  const emulation::Exchange all(&value, sizeof value, 32);
  return all.get<T>(emulation::thread_index() % 32 ^ static_cast<std::size_t>(lane));
}

inline void synchronize_warp() {
  const char nothing = 0;
  const emulation::Exchange all(&nothing, sizeof nothing, 32);
}

inline int add_byte_products(int a, int b, int sum) {
  const auto left = std::bit_cast<std::array<std::int8_t, 4>>(a), right = std::bit_cast<std::array<std::int8_t, 4>>(b);
  for (std::size_t i = 0; i < 4; ++i) sum += left[i] * right[i];
  return sum;
}

inline std::uint32_t select_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<std::uint32_t>(both >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
  }
  return result;
}

/// Element `i` (0 or 1) of a pair as tensor cores take it.
template <class T>
float element(std::uint32_t word, std::uint32_t i) {
  const T half = std::bit_cast<std::array<T, 2>>(word)[i];
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(half);
  } else {
    return __bfloat162float(half);
  }
}

template <class T>
void multiply_tile(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct Fragments {
    float a[4][2], b[2][2];
  } mine;
  for (std::uint32_t i = 0; i < 2; ++i) {
    for (std::uint32_t r = 0; r < 4; ++r) mine.a[r][i] = element<T>(a[r], i);
    mine.b[0][i] = element<T>(b0, i);
    mine.b[1][i] = element<T>(b1, i);
  }
  const emulation::Exchange all(&mine, sizeof mine, 32);
  const std::uint32_t lane = emulation::thread_index() % 32;
  for (std::uint32_t e = 0; e < 4; ++e) {
    const std::uint32_t row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    for (std::uint32_t k = 0; k < 16; ++k) {
      c[e] += all.get<Fragments>(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2][k % 2] *
              all.get<Fragments>(column * 4 + k % 8 / 2).b[k / 8][k % 2];
    }
  }
}

template <bool transposed>
void load_emulated(std::uint32_t (&to)[4], const void* row) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) throw std::runtime_error("misaligned matrix row");
  const emulation::Exchange all(&row, sizeof row, 32);
  const std::size_t lane = emulation::thread_index() % 32, r = lane / 4, c = lane % 4 * 2;
  for (std::size_t m = 0; m < 4; ++m) {
    std::uint16_t pair[2];
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t at = transposed ? c + i : r, column = transposed ? r : c + i;
      pair[i] = all.get<const std::uint16_t*>(8 * m + at)[column];
    }
    std::memcpy(&to[m], pair, sizeof pair);
  }
}
inline void load_matrices(std::uint32_t (&to)[4], const void* row) { load_emulated<false>(to, row); }
inline void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) { load_emulated<true>(to, row); }

inline void copy_async(void* shared, const void* global, bool valid) {
  const std::uintptr_t both = reinterpret_cast<std::uintptr_t>(shared) | reinterpret_cast<std::uintptr_t>(global);
  if (both % 16 != 0) throw std::runtime_error("misaligned copy");
  emulation::start_copy([=] { valid ? std::memcpy(shared, global, 16) : std::memset(shared, 0, 16); });
}
inline void copy_async_cached(void* shared, const void* global, bool valid) { copy_async(shared, global, valid); }
inline void commit_copies() { emulation::end_copies(); }
template <int kGroups>
void wait_for_copies() {
  emulation::wait_for_copies(kGroups);
}

template <class... Parameters, class Stream, class... Arguments>
void start_kernel(void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared_bytes,
                  const Stream& stream, const Arguments&... arguments) {
  if (shared_bytes > emulation::allowed_shared_bytes(kernel)) throw std::runtime_error("too much shared memory");
  emulation::submit(stream.get(),
                    [=] { emulation::launch(grid, dim3(threads), shared_bytes, [&] { kernel(arguments...); }); });
}

}  // namespace csdsim::host::cuda

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute, int bytes) {
  emulation::allowed_shared_bytes(kernel) = static_cast<std::size_t>(bytes);
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel* kernel, int, std::size_t shared_bytes) {
  *blocks = shared_bytes <= emulation::allowed_shared_bytes(kernel) ? 2 : 0;
  return cudaSuccess;
}
