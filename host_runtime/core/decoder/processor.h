// The processors that can compute a model for real.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace csdsim::host {

enum class Processor : std::uint8_t { cpu, cuda, cuda_bf16 };
/// As the command line has them; cuda computes in fp16.
inline constexpr std::array<std::string_view, 3> kProcessorNames{"cpu", "cuda", "cuda-bf16"};

}  // namespace csdsim::host
