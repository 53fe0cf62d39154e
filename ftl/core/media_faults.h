// Faults of the flash, as the FTL sees them.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "contracts/page_op.h"

namespace csdsim::ftl {

/// Decides the fate of page operations when they are planned. The answers must depend on the arguments and a seed only,
/// so that runs can be repeated.
class MediaFaults {
 public:
  virtual ~MediaFaults() = default;
  /// `erase_count` is that of the block, `reads_since_erase` the number of reads of any of its pages before this one.
  virtual ReadOutcome read(PhysicalPageAddress ppa, std::uint32_t erase_count, std::uint32_t reads_since_erase) = 0;
  virtual bool program_fails(PhysicalPageAddress ppa, std::uint32_t erase_count) = 0;
  virtual bool erase_fails(BlockId block, std::uint32_t erase_count) = 0;
};

}  // namespace csdsim::ftl
