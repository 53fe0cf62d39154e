// The instructions of kernels/hopper.cuh on the CPU. Barriers in shared memory count as the hardware's do; matrices in
// shared memory are found through their descriptors, swizzle included.
#pragma once

#include "tests/gpu/emulation/emulation.h"

namespace csdsim::host::cuda {

/// Rows of heads of 16-bit values.
struct TensorMap {
  const std::uint16_t* values;
  std::size_t row_stride;  ///< elements
  std::size_t head_size;
  std::size_t heads;
  std::size_t rows;
  std::size_t box_rows;
};

/// Completed phases, arrivals that a phase needs and still lacks, announced bytes that have not arrived.
struct SharedBarrierState {
  std::uint16_t phases;
  std::uint8_t arrivals, missing;
  std::int32_t bytes;
};
using SharedBarrier = std::uint64_t;
static_assert(sizeof(SharedBarrierState) == sizeof(SharedBarrier));

template <class Change>
void change_barrier(SharedBarrier* barrier, Change change) {
  SharedBarrierState state;
  std::memcpy(&state, barrier, sizeof state);
  change(state);
  if (state.missing == 0 && state.bytes == 0) {
    ++state.phases;
    state.missing = state.arrivals;
    emulation::made_progress();
  }
  std::memcpy(barrier, &state, sizeof state);
}

inline void barrier_init(SharedBarrier* barrier, std::uint32_t arrivals) {
  const auto count = static_cast<std::uint8_t>(arrivals);
  const SharedBarrierState state{0, count, count, 0};
  std::memcpy(barrier, &state, sizeof state);
}
inline void barrier_publish() {}
inline void barrier_arrive(SharedBarrier* barrier) {
  change_barrier(barrier, [](SharedBarrierState& s) { --s.missing; });
}
inline void barrier_arrive_expecting(SharedBarrier* barrier, std::uint32_t bytes) {
  change_barrier(barrier, [&](SharedBarrierState& s) {
    s.bytes += static_cast<std::int32_t>(bytes);
    --s.missing;
  });
}
inline void barrier_wait(SharedBarrier* barrier, std::uint32_t parity) {
  for (;;) {
    SharedBarrierState state;
    std::memcpy(&state, barrier, sizeof state);
    if (state.phases % 2 != parity) return;
    emulation::yield();
  }
}

inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(static_cast<const unsigned char*>(pointer) -
                                    static_cast<const unsigned char*>(emulation::shared_memory()));
}

/// 16-byte piece p of row r of eight rows of 128 bytes lies at piece p xor r.
inline std::uint32_t swizzle(std::uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

inline std::uint16_t* shared_element(std::uint32_t address) {
  return reinterpret_cast<std::uint16_t*>(static_cast<unsigned char*>(emulation::shared_memory()) + swizzle(address));
}

inline void copy_box(void* to, const TensorMap* map, SharedBarrier* barrier, int x, int head, int row) {
  // The thread may end before: it holds the map.
  emulation::start_block_copy([=, box = *map] {
    for (std::uint32_t r = 0; r < box.box_rows; ++r) {
      const std::size_t at_row = static_cast<std::size_t>(row) + r;
      const std::size_t first = at_row * box.row_stride + static_cast<std::size_t>(head) * box.head_size;
      for (std::uint32_t i = 0; i < 64; ++i) {
        *shared_element(shared_address(to) + r * 128 + i * 2) =
            at_row < box.rows ? box.values[first + static_cast<std::size_t>(x) + i] : std::uint16_t{0};
      }
    }
    change_barrier(barrier, [&](SharedBarrierState& s) { s.bytes -= static_cast<std::int32_t>(box.box_rows * 128); });
  });
}

template <int>
void give_registers() {}
template <int>
void take_registers() {}
inline void products_begin() { emulation::begin_products(); }
inline void products_commit() { emulation::end_products(); }
template <int kGroups>
void products_wait(float (&)[16][4]) {
  emulation::wait_for_products(kGroups);
}
inline void compute_now(float (&)[16][4]) {}
inline float exp2_approximate(float x) { return std::exp2(x); }

/// An element of a matrix by its descriptor: `along` counts in the direction of the row, `across` the rows.
template <class T>
float described_element(std::uint64_t descriptor, std::uint32_t along, std::uint32_t across) {
  const auto start = static_cast<std::uint32_t>(descriptor & 0x3FFF) << 4;
  const auto panel = static_cast<std::uint32_t>(descriptor >> 16 & 0x3FFF) << 4;
  const auto group = static_cast<std::uint32_t>(descriptor >> 32 & 0x3FFF) << 4;
  const std::uint32_t address = start + along / 64 * panel + across / 8 * group + across % 8 * 128 + along % 64 * 2;
  return element<T>(*shared_element(address), 0);
}

template <class T>
void multiply_shared(float (&c)[16][4], std::uint64_t a, std::uint64_t b, bool accumulate) {
  emulation::start_product([=, to = &c] {
    const std::uint32_t thread = emulation::thread_index() % 128, lane = thread % 32;
    for (std::uint32_t n = 0; n < 16; ++n) {
      for (std::uint32_t e = 0; e < 4; ++e) {
        const std::uint32_t row = thread / 32 * 16 + lane / 4 + e / 2 * 8, column = 8 * n + lane % 4 * 2 + e % 2;
        float sum = accumulate ? (*to)[n][e] : 0.0f;
        for (std::uint32_t k = 0; k < 16; ++k) {
          sum += described_element<T>(a, k, row) * described_element<T>(b, k, column);
        }
        (*to)[n][e] = sum;
      }
    }
  });
}

/// The registers of `a` are read when the product is carried out, as on the hardware.
template <class T>
void multiply_registers(float (&c)[16][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  emulation::start_product([=, to = &c, from = &a] {
    struct Fragment {
      std::uint32_t a[4];
    } const mine{{(*from)[0], (*from)[1], (*from)[2], (*from)[3]}};
    const emulation::Exchange all(&mine, sizeof mine, 32);
    const std::uint32_t lane = emulation::thread_index() % 32;
    for (std::uint32_t k = 0; k < 16; ++k) {
      for (std::uint32_t half = 0; half < 2; ++half) {
        const auto owner = all.get<Fragment>(lane / 4 * 4 + k % 8 / 2);
        const float left = element<T>(owner.a[half + k / 8 * 2], k % 2);
        for (std::uint32_t n = 0; n < 16; ++n) {
          for (std::uint32_t e = 2 * half; e < 2 * half + 2; ++e) {
            (*to)[n][e] += left * described_element<T>(b, 8 * n + lane % 4 * 2 + e % 2, k);
          }
        }
      }
    }
  });
}

}  // namespace csdsim::host::cuda
