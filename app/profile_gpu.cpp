#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "app/commands.h"
#include "host_runtime/cuda/loader/cuda_module.h"
#include "report/files.h"

namespace csdsim::app {
namespace {

using host::ComputeWork;
using host::OperatorClass;

constexpr std::uint64_t kSide = 8192;

/// Rates that the operators reach, without the kernel launch.
struct Rates {
  double launch_s = 0;
  double gemm = 0, attention_prefill = 0;                  // operations per second
  double gemv = 0, attention_decode = 0, elementwise = 0;  // bytes per second
};

Rates measure(host::CudaModule& gpu) {
  const auto seconds = [&](const ComputeWork& work) { return gpu.measure(work).seconds(); };
  const auto tiny = [&](std::uint32_t launches) {
    return seconds({.op = OperatorClass::elementwise, .flops = 1, .activations = Bytes{6}, .launches = launches});
  };
  Rates rates;
  rates.launch_s = std::max(0.0, (tiny(101) - tiny(1)) / 100);
  const auto rate = [&](const ComputeWork& work, std::uint64_t amount) {
    return static_cast<double>(amount) / std::max(1e-9, seconds(work) - rates.launch_s);
  };
  const Bytes weights{2 * kSide * kSide};
  const std::uint64_t many = 2 * kSide * kSide * 4096, half_gib = std::uint64_t{1} << 29;
  rates.gemm = rate({.op = OperatorClass::gemm, .flops = many, .weights = weights}, many);
  rates.gemv = rate({.op = OperatorClass::gemm, .flops = 2 * kSide * kSide, .weights = weights}, weights.value);
  rates.attention_prefill = rate({.op = OperatorClass::attention, .flops = many, .activations = Bytes::mib(256)}, many);
  rates.attention_decode =
      rate({.op = OperatorClass::attention, .flops = half_gib, .activations = Bytes{half_gib}}, half_gib);
  rates.elementwise =
      rate({.op = OperatorClass::elementwise, .flops = half_gib / 6, .activations = Bytes{half_gib}}, half_gib);
  return rates;
}

std::string preset_name(const std::string& gpu) {
  std::string name;
  for (const char c : gpu) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  return name + "-measured";
}

}  // namespace

int profile_gpu(const ProfileGpuArguments& arguments) {
  const std::shared_ptr<host::CudaModule> gpu = host::load_cuda_module();
  const host::GpuDescription description = gpu->describe();
  const Rates rates = measure(*gpu);
  // The peaks of the preset are the highest measured rates, so that every share is a share of a measured value.
  const double flops = std::max(rates.gemm, rates.attention_prefill);
  const double bytes = std::max({rates.gemv, rates.attention_decode, rates.elementwise});
  const std::string cite = fmt::format("csdsim profile-gpu on {}, CUDA {}.{}", description.name,
                                       description.cuda_version / 1000, description.cuda_version % 1000 / 10);
  const auto value = [&](const std::string& text) {
    return fmt::format("{{v: {}, src: measured, cite: '{}'}}", text, cite);
  };
  const auto share = [&](double part, double of) {
    return value(fmt::format("{:.3f}", std::clamp(part / of, 0.001, 1.0)));
  };
  const std::string name = arguments.name.empty() ? preset_name(description.name) : arguments.name;
  const std::string text = fmt::format(
      "# Written by csdsim profile-gpu. In a scenario: presets: [{}], platform: {{gpu: {{preset: {}}}}}\n"
      "kind: gpu\n"
      "presets:\n"
      "  {}:\n"
      "    doc: {}, as measured; its link was not measured.\n"
      "    values:\n"
      "      fp16_rate: {}\n"
      "      memory_bandwidth: {}\n"
      "      memory: {}\n"
      "      kernel_launch: {}\n"
      "      efficiency:\n"
      "        gemm: {}\n"
      "        gemv: {}\n"
      "        attention_prefill: {}\n"
      "        attention_decode: {}\n"
      "        elementwise: {}\n",
      arguments.out.filename().string(), name, name, description.name,
      value(fmt::format("{:.1f} TFLOPS", flops * 1e-12)), value(fmt::format("{:.0f} GB/s", bytes * 1e-9)),
      value(fmt::format("{} MiB", description.memory.value >> 20)),
      value(fmt::format("{:.0f} ns", rates.launch_s * 1e9)), share(rates.gemm, flops), share(rates.gemv, bytes),
      share(rates.attention_prefill, flops), share(rates.attention_decode, bytes), share(rates.elementwise, bytes));
  report::write_file(arguments.out, text);
  fmt::print("{}\nwritten to {}\n", text, arguments.out.string());
  return 0;
}

}  // namespace csdsim::app
