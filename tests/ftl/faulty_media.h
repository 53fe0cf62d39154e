// Flash that fails at random with given probabilities.
#pragma once

#include "base/rng.h"
#include "ftl/core/media_faults.h"

namespace csdsim::ftl::test {

/// Each answer depends on the seed, the address and how often the block was erased.
struct FaultyMedia final : MediaFaults {
  explicit FaultyMedia(std::uint64_t s) : seed(s) {}

  ReadOutcome read(PhysicalPageAddress ppa, std::uint32_t erase_count, std::uint32_t reads_since_erase) override {
    const std::uint64_t draw = counter_random(seed ^ erase_count, ppa.value + (std::uint64_t{reads_since_erase} << 40));
    return {static_cast<std::uint8_t>(unit(draw) < retry ? 1 : 0), unit(splitmix64(draw)) < uncorrectable};
  }
  bool program_fails(PhysicalPageAddress ppa, std::uint32_t erase_count) override {
    return unit(counter_random(seed + 1, ppa.value + (std::uint64_t{erase_count} << 40))) < program;
  }
  bool erase_fails(BlockId block, std::uint32_t erase_count) override {
    return unit(counter_random(seed + 2, block.value + (std::uint64_t{erase_count} << 40))) < erase;
  }

  std::uint64_t seed;
  double retry = 0;
  double uncorrectable = 0;
  double program = 0;
  double erase = 0;

 private:
  static double unit(std::uint64_t draw) { return static_cast<double>(draw >> 11) * 0x1p-53; }
};

}  // namespace csdsim::ftl::test
