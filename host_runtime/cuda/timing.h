// The time of work on a stream, by CUDA events.
#pragma once

#include <functional>

#include "host_runtime/cuda/device.h"
#include "host_runtime/cuda/memory.h"

namespace csdsim::host::cuda {

/// Median and extremes of several runs.
struct MeasuredSeconds {
  double median = 0, fastest = 0, slowest = 0;

  friend MeasuredSeconds operator*(double share, const MeasuredSeconds& of) {
    return {share * of.median, share * of.fastest, share * of.slowest};
  }
};

/// How to measure: runs that do not count, runs that do. If `cold`, the L2 cache is filled with other data before each
/// run, outside the measured time. They are read, not written: the measured work would pay for storing what was
/// written.
struct Measurement {
  int warm_ups = 1;
  int runs = 3;
  bool cold = false;
};

MeasuredSeconds measure_seconds(const Stream& stream, DevicePool& pool, const DeviceInfo& device,
                                const Measurement& measurement, const std::function<void()>& work);

}  // namespace csdsim::host::cuda
