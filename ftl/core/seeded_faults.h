// Programs and erases that fail at random, from a seed: for tests of FTLs.
#pragma once

#include <cstdint>

#include "base/rng.h"
#include "ftl/core/media_faults.h"

namespace csdsim::ftl {

/// Makes programs and erases fail; the seed determines which.
class SeededFaults final : public MediaFaults {
 public:
  SeededFaults(std::uint64_t seed, std::uint32_t per_mille) : seed_(seed), per_mille_(per_mille) {}
  ReadOutcome read(PhysicalPageAddress, std::uint32_t, std::uint32_t) override { return {}; }
  bool program_fails(PhysicalPageAddress ppa, std::uint32_t erases) override { return draw(ppa.value, erases); }
  bool erase_fails(BlockId block, std::uint32_t erases) override { return draw(~std::uint64_t{block.value}, erases); }

 private:
  bool draw(std::uint64_t what, std::uint64_t erases) const {
    return counter_random(counter_random(seed_, what), erases) % 1000 < per_mille_;
  }
  std::uint64_t seed_;
  std::uint32_t per_mille_;
};

}  // namespace csdsim::ftl
