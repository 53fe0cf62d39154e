// Upper bounds of a drive's rates: what its parts reach when they never wait.
#pragma once

#include <array>

#include "base/units.h"
#include "contracts/drive_station.h"
#include "csd_model/device_config.h"

namespace csdsim::csd_model {

/// Peaks of one drive per second, and the bytes that its smallest read of K or V moves.
struct DrivePeaks {
  double channels = 0;              ///< bytes over all flash channels, parity included
  double multiply_accumulates = 0;  ///< multiply-accumulates by all attention kernels
  double dequantised = 0;           ///< elements of 8 or 4 bits that all attention kernels dequantise
  std::array<double, 3> scores{};   ///< products of scores, by ScorePrecision; 0: the engine has no such scores
  Bytes fetch;                      ///< bytes of a page that are read for one token: some codewords, or the whole page
};

DrivePeaks drive_peaks(const DeviceConfig& device);

/// Bytes per second that reach the engine if `of_page` bytes of each page are read: the least of the channels (with
/// commands and parity), the planes, the filters and, behind a switch, its link and the FPGA's DRAM.
double peak_reads(const DeviceConfig& device, Bytes of_page);

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
