// Configuration of the host's file I/O.
#pragma once

#include <cstdint>

#include "base/param.h"
#include "base/units.h"

namespace csdsim::host {

/// Parameters of FileBackend. The defaults describe one thread that reads with O_DIRECT.
struct FileIoConfig {
  Bytes io_size = Bytes::kib(128);
  SimTime io_overhead = SimTime::microseconds(8);
  std::uint32_t threads = 1;
  Bandwidth copy_bandwidth{};  ///< 0: direct I/O
};

void describe(ParamVisitor& v, FileIoConfig& c);

}  // namespace csdsim::host
