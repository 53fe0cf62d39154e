// Shared by the GPU benches: peaks, and a line of the table in docs/gpu.md.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "host_runtime/cuda/cuda_backend.h"

namespace gpu_bench {

using csdsim::host::cuda::Context;

/// Peaks that shares are taken of.
struct Peaks {
  double bytes_per_second;
  double flops;
};

/// The GPU's peaks by name (data sheets: H200 4.8 TB/s and 989 TFLOP/s, ...); memory from the driver where it is
/// unknown.
Peaks peaks(const csdsim::host::cuda::DeviceInfo& device);

/// One row of the table: what, figure with unit, the goal and whether it was met (goal 0: none).
void row(const std::string& what, double value, const std::string& unit, double share, double goal);

void bench_models(Context& context);

}  // namespace gpu_bench
