// Machines for the tests of FlexGen's cost model and policy search.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/rng.h"
#include "host_runtime/core/planner/systems/flexgen_ssd/policy_search.h"

namespace csdsim::host::test {

constexpr Bandwidth gigabytes_per_second(double v) { return {static_cast<std::uint64_t>(v * 1e9)}; }
constexpr ComputeRate teraflops(double v) { return {static_cast<std::uint64_t>(v * 1e12)}; }

/// A6000 with 48 GiB, 8 GiB of usable host memory, and the disk bandwidth that InstInfer's results imply for FlexGen.
inline FlexGenHardware a6000() {
  return {.host_to_gpu = gigabytes_per_second(25),
          .gpu_to_host = gigabytes_per_second(20),
          .disk_to_host = gigabytes_per_second(1.3),
          .host_to_disk = gigabytes_per_second(1),
          .gpu_matrix_rate = teraflops(100),
          .gpu_attention_rate = teraflops(10),
          .host_attention_rate = teraflops(0.5),
          .capacity = {Bytes::gib(48), Bytes::gib(8), Bytes::gib(1024)}};
}

/// Random paths, rates and capacities, the latter between `least` and `most` of what everything needs.
inline FlexGenHardware random_hardware(Rng& rng, double everything, double least, double most) {
  const auto between = [&](double low, double high) { return low * std::pow(high / low, rng.unit()); };
  const auto bytes = [&] { return Bytes{static_cast<std::uint64_t>(everything * between(least, most))}; };
  FlexGenHardware h{.host_to_gpu = gigabytes_per_second(between(2, 60)),
                    .gpu_to_host = gigabytes_per_second(between(2, 60)),
                    .disk_to_host = gigabytes_per_second(between(0.2, 20)),
                    .host_to_disk = gigabytes_per_second(between(0.1, 20)),
                    .gpu_matrix_rate = teraflops(between(2, 300)),
                    .gpu_attention_rate = teraflops(between(0.05, 100)),
                    .host_attention_rate = teraflops(between(0.01, 2)),
                    .capacity = {bytes(), bytes(), bytes()}};
  if (rng.below(2) == 1) h.gpu_memory_bandwidth = gigabytes_per_second(between(100, 3000));
  if (rng.below(2) == 1) h.host_memory_bandwidth = gigabytes_per_second(between(20, 400));
  return h;
}

}  // namespace csdsim::host::test
