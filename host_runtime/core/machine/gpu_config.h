// The configuration of a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/param.h"
#include "base/quantity.h"
#include "base/units.h"
#include "host_runtime/core/machine/gemm_rates.h"
#include "host_runtime/core/machine/roofline_efficiency.h"

namespace csdsim::host {

enum class GpuTiming : std::uint8_t { modelled, measured };

/// Section `platform.gpu` without the GPU's link. The defaults are those of an NVIDIA RTX A6000. They count only where
/// neither the scenario nor its GPU preset (scenario/presets/gpu.yaml) gives a value.
struct GpuConfig {
  std::string preset;
  GpuTiming timing = GpuTiming::modelled;
  std::optional<InputPath> times;  ///< result.json of an earlier measured run; its times are used
  ComputeRate fp16_rate{155'000'000'000'000};
  Bandwidth memory_bandwidth{768'000'000'000};
  Bytes memory = Bytes::gib(48);
  SimTime kernel_launch = SimTime::microseconds(5);
  RooflineEfficiency efficiency;
  GemmRates gemm_by_rows;  ///< replaces fp16_rate and efficiency.gemm if it is given
};

void describe(ParamVisitor& v, GpuConfig& c);

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::GpuTiming> {
  static constexpr EnumValue<host::GpuTiming> values[] = {
      {host::GpuTiming::modelled, "modelled", "A roofline model with an efficiency per kind of operator."},
      {host::GpuTiming::measured, "measured",
       "Measured on this machine's GPU with CUDA events, once per operator and size."}};
};

}  // namespace csdsim
