// Instructions of sm_90a: bulk tensor copies that complete on barriers in shared memory, and matrix products of a
// warpgroup (128 threads) with operands in shared memory.
#pragma once

#include "host_runtime/cuda/kernels/device.cuh"

#ifndef CSDSIM_CUDA_EMULATION
#include <cuda.h>

namespace csdsim::host::cuda {

using TensorMap = CUtensorMap;
using SharedBarrier = std::uint64_t;

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// A phase ends after `arrivals` arrivals and the announced bytes.
__device__ __forceinline__ void barrier_init(SharedBarrier* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/// Makes the barriers visible to the copy engine. Call it after the last init, in the same thread.
__device__ __forceinline__ void barrier_publish() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(SharedBarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_arrive_expecting(SharedBarrier* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
/// Returns when the phase of this parity is over; phases alternate, the first has parity 0.
__device__ __forceinline__ void barrier_wait(SharedBarrier* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Starts the copy of a box of the map, at element `x` of `head` of `row`, that completes on `barrier`.
__device__ __forceinline__ void copy_box(void* to, const TensorMap* map, SharedBarrier* barrier, int x, int head,
                                         int row) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(head), "r"(row)
      : "memory");
}

/// Releases registers of the warpgroup, or takes more.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Call it before products that read registers written since the last products.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of products.
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define CSDSIM_64_REGISTERS                                                                                          \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"  \
  "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
  "%58,%59,%60,%61,%62,%63}"
#define CSDSIM_8_OUTPUTS(c, i)                                                                                         \
  "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3]), "+f"(c[i + 1][0]), "+f"(c[i + 1][1]), "+f"(c[i + 1][2]), \
      "+f"(c[i + 1][3])
#define CSDSIM_64_OUTPUTS(c)                                                                      \
  CSDSIM_8_OUTPUTS(c, 0), CSDSIM_8_OUTPUTS(c, 2), CSDSIM_8_OUTPUTS(c, 4), CSDSIM_8_OUTPUTS(c, 6), \
      CSDSIM_8_OUTPUTS(c, 8), CSDSIM_8_OUTPUTS(c, 10), CSDSIM_8_OUTPUTS(c, 12), CSDSIM_8_OUTPUTS(c, 14)

/// c = a b, or c += a b: a 64 x 16 and b 16 x 128, both in shared memory with consecutive elements along the 16. The
/// four values c[n] of a thread are those of multiply_tile for columns 8 n on of its warp's 16 rows.
template <class T>
__device__ __forceinline__ void multiply_shared(float (&c)[16][4], std::uint64_t a, std::uint64_t b, bool accumulate) {
  const int add = accumulate ? 1 : 0;
  if constexpr (__is_same(T, __half)) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " CSDSIM_64_REGISTERS ", %64, %65, add, 1, 1, 0, 0;\n}"
        : CSDSIM_64_OUTPUTS(c)
        : "l"(a), "l"(b), "r"(add));
  } else {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " CSDSIM_64_REGISTERS ", %64, %65, add, 1, 1, 0, 0;\n}"
        : CSDSIM_64_OUTPUTS(c)
        : "l"(a), "l"(b), "r"(add));
  }
}

/// c += a b: a 64 x 16 in registers as in multiply_tile, b 16 x 128 in shared memory with consecutive elements along
/// the 128.
template <class T>
__device__ __forceinline__ void multiply_registers(float (&c)[16][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  if constexpr (__is_same(T, __half)) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " CSDSIM_64_REGISTERS
                 ", {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                 : CSDSIM_64_OUTPUTS(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " CSDSIM_64_REGISTERS
                 ", {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                 : CSDSIM_64_OUTPUTS(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
}

/// Waits until at most the newest `kGroups` groups are in flight. `c` is what the groups that it waits for compute: no
/// use of it moves before the wait.
template <int kGroups>
__device__ __forceinline__ void products_wait(float (&c)[16][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %64;" : CSDSIM_64_OUTPUTS(c) : "n"(kGroups) : "memory");
}

/// Values of `c` are computed here and not later: the compiler must not move work below the next wait.
__device__ __forceinline__ void compute_now(float (&c)[16][4]) { asm volatile("" : CSDSIM_64_OUTPUTS(c) : : "memory"); }
#undef CSDSIM_64_REGISTERS
#undef CSDSIM_8_OUTPUTS
#undef CSDSIM_64_OUTPUTS

__device__ __forceinline__ float exp2_approximate(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace csdsim::host::cuda
#endif

namespace csdsim::host::cuda {

/// Descriptor of a matrix of 16-bit values in shared memory (PTX, matrix descriptor): rows of 128 bytes whose 16-byte
/// pieces are swizzled within groups of eight rows, as copy_box() writes them. `group_stride`: bytes from eight rows to
/// the next eight; `panel_stride`: bytes from 64 elements of a row to the next 64.
__device__ __forceinline__ std::uint64_t matrix_descriptor(std::uint32_t address, std::uint32_t group_stride,
                                                           std::uint32_t panel_stride) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  return kSwizzle128 | (address & 0x3FFFFu) >> 4 | std::uint64_t{panel_stride >> 4} << 16 |
         std::uint64_t{group_stride >> 4} << 32;
}

}  // namespace csdsim::host::cuda
