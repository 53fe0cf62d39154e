// The streams, events and graphs of the emulated runtime. Work does nothing when it is put into a stream: it runs when
// the host waits for it, or by chance while the host waits for something else. What runs next is drawn from the streams
// whose next work may run, so that a run shows one of the orders that a GPU may choose, and another seed another.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

namespace emulation {

/// How long work takes by the emulated clock, which has nothing to do with a real GPU: 1 ns per byte that is copied,
/// 1 ps per operation of a matrix product, 1 us for everything else.
struct Picoseconds {
  std::uint64_t value = 1'000'000;
};
constexpr Picoseconds time_to_copy(std::size_t bytes) { return {1000 * std::uint64_t{bytes}}; }

/// Puts work into a stream, or into the graph that the stream records.
void submit(cudaStream_t stream, std::function<void()> work, Picoseconds duration = {});

/// Runs work in a legal order until that of the stream is done. Throws what work throws, std::runtime_error if streams
/// wait for one another for ever; all work is dropped then.
void synchronise(cudaStream_t stream);
void synchronise_device();
/// True if a stream records: nothing may be allocated or waited for.
bool recording();

/// The algorithms that the emulated cuBLASLt proposes, best first as it says: how many picoseconds each takes per
/// operation. By default there is one.
std::vector<unsigned>& product_times();

/// True if cuDNN is installed, and how many plans it has made since that was said. By default it is not.
void install_cudnn(bool installed);
std::size_t cudnn_plans();

/// What determines the orders that are drawn before restart(): the environment variable CSDSIM_EMULATION_SEED, or 1.
std::uint64_t first_seed();

/// Starts again: new streams are counted from those that exist, events from 0, and the seed determines which orders are
/// drawn, of streams and within kernels.
void restart(std::uint64_t seed);

/// Does that for what is drawn within kernels.
void restart_blocks(std::uint64_t seed);

/// A stream and an event for which it waits, as counted since restart().
using Wait = std::pair<std::uint32_t, std::uint32_t>;
/// The waits since restart().
const std::set<Wait>& waits();
/// Leaves out the waits that are `left_out` from now on: what depends on them must fail a test. Null: leaves out none.
void leave_out(std::function<bool(const Wait&)> left_out);

}  // namespace emulation
