// Into how many parts decode attention splits the tokens of a sequence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define CSDSIM_HOST_DEVICE __host__ __device__
#else
#define CSDSIM_HOST_DEVICE
#endif

namespace csdsim::host::cuda {

/// The work of one launch: `pairs` of sequence and head, each of at most `units` pieces that cannot be split, on
/// multiprocessors that hold `resident` blocks each.
struct DecodeLoad {
  std::size_t pairs = 1;
  std::size_t units = 1;
  std::size_t multiprocessors = 1;
  std::size_t resident = 1;
};

inline constexpr std::size_t kMostDecodeSplits = 64;

/// The fewest splits that use the GPU about as well as any number (as FlashAttention-2 chooses them): blocks run in
/// waves of all resident ones, and the last wave may be partly empty. Nearly two blocks per multiprocessor keep enough
/// bytes in flight, so that sequences which give that many are not split.
inline std::uint32_t decode_splits(const DecodeLoad& load) {
  constexpr double kFull = 0.8, kGoodEnough = 0.85;
  if (static_cast<double>(load.pairs) >= kFull * 2 * static_cast<double>(load.multiprocessors)) return 1;
  const std::size_t slots = load.resident * load.multiprocessors;
  const auto efficiency = [&](std::size_t splits) {
    const std::size_t blocks = load.pairs * splits, waves = (blocks + slots - 1) / slots;
    return static_cast<double>(blocks) / static_cast<double>(waves * slots);
  };
  const std::size_t most = std::clamp<std::size_t>(load.units, 1, kMostDecodeSplits);
  double best = 0;
  for (std::size_t splits = 1; splits <= most; ++splits) best = std::max(best, efficiency(splits));
  std::size_t splits = 1;
  while (efficiency(splits) < kGoodEnough * best) ++splits;
  return static_cast<std::uint32_t>(splits);
}

/// Units that one of `blocks` blocks gets if they share `units` evenly.
CSDSIM_HOST_DEVICE constexpr std::uint32_t units_per_block(std::uint32_t units, std::uint32_t blocks) {
  const std::uint32_t share = (units + blocks - 1) / blocks;
  return share == 0 ? 1 : share;
}

/// Into how many parts a list with `units` is split so that none has more than `per_block`.
CSDSIM_HOST_DEVICE constexpr std::uint32_t parts_of(std::uint32_t units, std::uint32_t per_block) {
  return units == 0 ? 1 : (units + per_block - 1) / per_block;
}

}  // namespace csdsim::host::cuda
