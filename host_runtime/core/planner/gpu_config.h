// The configuration of a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/param.h"
#include "base/quantity.h"
#include "base/units.h"

namespace csdsim::host {

enum class GpuTiming : std::uint8_t { modelled, measured };

/// Shares of the peak that operators reach: of the peak rate if compute-bound, of memory bandwidth otherwise.
struct GpuEfficiency {
  Ratio gemm = Ratio::of(7, 10);
  Ratio gemv = Ratio::of(8, 10);
  Ratio attention_prefill = Ratio::of(5, 10);
  Ratio attention_decode = Ratio::of(8, 10);
  Ratio elementwise = Ratio::of(8, 10);
};

/// Section `platform.gpu` without the GPU's link. The defaults are those of an NVIDIA RTX A6000.
struct GpuConfig {
  std::string preset;
  GpuTiming timing = GpuTiming::modelled;
  std::optional<InputPath> times;  ///< result file of an earlier measured run
  ComputeRate fp16_rate{155'000'000'000'000};
  Bandwidth memory_bandwidth{768'000'000'000};
  Bytes memory = Bytes::gib(48);
  SimTime kernel_launch = SimTime::microseconds(5);
  GpuEfficiency efficiency;
};

void describe(ParamVisitor& v, GpuEfficiency& c);
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
