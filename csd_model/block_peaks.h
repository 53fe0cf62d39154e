// Upper bounds of a drive's rates of block commands: what its parts reach when they never wait.
#pragma once

#include "base/drive_station.h"
#include "base/units.h"
#include "csd_model/device_config.h"

namespace csdsim::csd_model {

/// Block commands that are alike.
struct BlockLoad {
  double reads = 1;  ///< share of reads; the others write
  Bytes size = Bytes::kib(4);
  bool sequential = false;
  double write_amplification = 1;  ///< pages programmed per page that the host writes
  bool buffered = false;           ///< writes end in a buffer with room: their programs keep nothing waiting
};

struct BlockPeak {
  double requests_per_s = 0;
  DriveStation binds{};  ///< the part that reaches no more
};

/// The least of what controller, link, flash arrays and flash channels reach. Firmware lookups, DRAM, erases and reads
/// of garbage collection are left out: they can only lower it. Precondition: a checked configuration.
BlockPeak block_peak(const DeviceConfig& device, const BlockLoad& load);

/// Bytes of flash that a random write of `size` programs, without write amplification: whole mapping units.
Bytes programmed_by_write(const DeviceConfig& device, Bytes size);

}  // namespace csdsim::csd_model
