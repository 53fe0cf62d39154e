// Upper bounds of a drive's rates: what its parts reach when they never wait.
#pragma once

#include <array>

#include "base/units.h"
#include "csd_model/device_config.h"

namespace csdsim::csd_model {

/// Peaks of one drive per second, and the bytes that its smallest read of K or V moves.
struct DrivePeaks {
  double channels = 0;              ///< bytes over all flash channels, parity included
  double multiply_accumulates = 0;  ///< of all attention kernels
  double dequantised = 0;           ///< elements of few bits that all attention kernels take in
  std::array<double, 3> scores{};   ///< products of scores, by ScorePrecision; 0: the engine has no such scores
  Bytes fetch;                      ///< of a page that is read for one token: some codewords, or the page
};

DrivePeaks drive_peaks(const DeviceConfig& device);

/// Bytes per second that reach the engine if `of_page` bytes of each page are read: the least of the channels (with
/// commands and parity), the planes, the filters and, behind a switch, its link and the FPGA's DRAM.
double peak_reads(const DeviceConfig& device, Bytes of_page);

}  // namespace csdsim::csd_model
