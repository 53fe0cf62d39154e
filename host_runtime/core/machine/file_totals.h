// Totals of the file operations of a run.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace csdsim::host {

struct FileTotals {
  std::uint64_t ios = 0;
  std::uint64_t cache_hits = 0;  ///< I/Os whose chunk was in the page cache, or on its way there
  Bytes wanted;                  ///< requested by operations
  Bytes transferred;             ///< whole blocks, to and from drives
  Bytes written_back;            ///< the transferred bytes that were written back in the background
  Bytes copied;                  ///< between I/O buffers or page cache and memory
  SimTime thread_time;           ///< spent on overheads and copies, summed over the threads
};

}  // namespace csdsim::host
