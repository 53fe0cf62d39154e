#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "app/commands.h"
#include "app/standard_output.h"
#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/platform_rates.h"
#include "host_runtime/core/machine/gpu_model.h"
#include "host_runtime/cuda/loader/cuda_module.h"
#include "report/files.h"

namespace csdsim::app {
namespace {

using host::ComputeWork;
using host::OperatorClass;
using Measure = std::function<host::MeasuredTime(const ComputeWork&)>;

constexpr std::uint64_t kSide = 8192;
/// Rows of matrix products, from a decode step's to a recomputation's.
constexpr std::array<std::uint64_t, 9> kRows{16, 64, 128, 256, 512, 1024, 4096, 16384, 65536};
constexpr std::uint64_t kPromptRows = 4096;

/// Rates that the operators reach, without the kernel launch.
struct Rates {
  double launch_s = 0;
  double attention_prefill = 0;                            // operations per second
  double gemv = 0, attention_decode = 0, elementwise = 0;  // bytes per second
  std::vector<double> gemm;                                // operations per second, by kRows
  double spread = 0;  // largest difference of two runs of the same work, as a share of its median
};

/// What a profile is made of, and where it comes from.
struct Profile {
  Rates rates;
  double to_gpu = 0, from_gpu = 0;  // bytes per second
  Bytes memory;
  std::string gpu;     ///< name
  std::string source;  ///< "measured" or "assumed"
  std::string cite;
  std::string conditions;  ///< under which it was measured, for a reader
};

Rates measure(const Measure& time_of) {
  Rates rates;
  const auto seconds = [&](const ComputeWork& work) {
    const host::MeasuredTime time = time_of(work);
    // The spread of work that takes no longer than a few launches says nothing about the rates.
    if (time.median > SimTime::microseconds(100))
      rates.spread = std::max(rates.spread, (time.slowest - time.fastest).seconds() / time.median.seconds());
    return time.median.seconds();
  };
  const auto tiny = [&](std::uint32_t launches) {
    return seconds({.op = OperatorClass::elementwise, .flops = 1, .activations = Bytes{6}, .launches = launches});
  };
  rates.launch_s = std::max(0.0, (tiny(101) - tiny(1)) / 100);
  const auto rate = [&](const ComputeWork& work, std::uint64_t amount) {
    return static_cast<double>(amount) / std::max(1e-9, seconds(work) - rates.launch_s);
  };
  const Bytes weights{2 * kSide * kSide};
  const std::uint64_t many = 2 * kSide * kSide * kPromptRows, half_gib = std::uint64_t{1} << 29;
  rates.gemv = rate({.op = OperatorClass::gemm, .flops = 2 * kSide * kSide, .weights = weights}, weights.value);
  rates.attention_prefill = rate({.op = OperatorClass::attention, .flops = many, .activations = Bytes::mib(256)}, many);
  rates.attention_decode =
      rate({.op = OperatorClass::attention, .flops = half_gib, .activations = Bytes{half_gib}}, half_gib);
  rates.elementwise =
      rate({.op = OperatorClass::elementwise, .flops = half_gib / 6, .activations = Bytes{half_gib}}, half_gib);
  std::uint64_t before = 0;
  for (const std::uint64_t rows : kRows) {
    const std::uint64_t flops = 2 * kSide * kSide * rows;
    const double measured = rate({.op = OperatorClass::gemm, .flops = flops, .weights = weights}, flops);
    // More rows do not take less time, whatever a measurement says.
    const double most = rates.gemm.empty() ? measured : rates.gemm.back() * double(rows) / double(before);
    rates.gemm.push_back(std::min(measured, most));
    before = rows;
  }
  return rates;
}

/// "SM clock 1755 MHz (at most 1980), memory clock 2619 MHz (at most 2619), power limit 700 W, by NVML".
std::string conditions_text(const host::GpuConditions& c) {
  const auto clock = [](const char* name, double now, double most) {
    if (now > 0) return fmt::format("{} clock {:.0f} MHz (at most {:.0f})", name, now, most);
    if (most > 0) return fmt::format("{} clock at most {:.0f} MHz", name, most);
    return fmt::format("{} clock not stated", name);
  };
  const std::string power =
      c.power_limit_w > 0 ? fmt::format("power limit {:.0f} W", c.power_limit_w) : "power limit not stated";
  return fmt::format("{}, {}, {}, by {}", clock("SM", c.sm_mhz, c.most_sm_mhz),
                     clock("memory", c.memory_mhz, c.most_memory_mhz), power, c.source);
}

Profile of_machine() {
  const std::shared_ptr<host::CudaModule> gpu = host::load_cuda_module();
  const host::GpuDescription description = gpu->describe();
  const std::unique_ptr<host::WorkTimer> timer = gpu->make_timer({});
  double copy_spread = 0;
  const auto copy_rate = [&](bool to_gpu) {
    constexpr Bytes kCopied = Bytes::mib(256);
    const host::MeasuredTime time = gpu->measure_copy(kCopied, to_gpu);
    copy_spread = std::max(copy_spread, (time.slowest - time.fastest).seconds() / time.median.seconds());
    return static_cast<double>(kCopied.value) / std::max(1e-9, time.median.seconds());
  };
  Profile profile{.rates = measure([&](const ComputeWork& work) { return timer->time(work); }),
                  .to_gpu = {},
                  .from_gpu = {},
                  .memory = description.memory,
                  .gpu = description.name,
                  .source = "measured",
                  .cite = fmt::format("csdsim profile-gpu on {}, CUDA {}.{}", description.name,
                                      description.cuda_version / 1000, description.cuda_version % 1000 / 10),
                  .conditions = {}};
  // The products were the latest work: these are the clocks of a busy GPU.
  profile.conditions = conditions_text(gpu->conditions());
  profile.to_gpu = copy_rate(true);
  profile.from_gpu = copy_rate(false);
  profile.conditions +=
      fmt::format(". Spread of the runs of one measurement: at most {:.1f} % of its median, of copies {:.1f} %",
                  100 * profile.rates.spread, 100 * copy_spread);
  return profile;
}

Profile of_model(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  const scenario::Scenario s = experiment::load_scenario(path, overrides).base.scenario;
  const platform::AttachedGpu& gpu = s.platform.gpu;
  if (gpu.timing != host::GpuTiming::modelled)
    throw UserError(fmt::format("profile-gpu: {} measures its GPU; leave --scenario out", path.string()));
  const host::GpuModel model(gpu);
  const host::PlatformRates rates = experiment::platform_rates(s);
  const auto time = [&](const ComputeWork& work) {
    const SimTime modelled = model.time(work);
    return host::MeasuredTime{modelled, modelled, modelled};
  };
  return {.rates = measure(time),
          .to_gpu = static_cast<double>(rates.host_to_gpu.bytes_per_second),
          .from_gpu = static_cast<double>(rates.gpu_to_host.bytes_per_second),
          .memory = gpu.memory,
          .gpu = gpu.preset.empty() ? s.name : gpu.preset,
          .source = "assumed",
          .cite = fmt::format("csdsim profile-gpu, from the model of {}", path.filename().string()),
          .conditions = {}};
}

std::string preset_name(const std::string& gpu, const std::string& source) {
  std::string name;
  for (const char c : gpu) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  return name + (source == "measured" ? "-measured" : "-modelled");
}

/// Rounded down, so that more rows never take less time.
std::string rate_text(double rate) { return fmt::format("{} MFLOPS", static_cast<std::uint64_t>(rate * 1e-6)); }

std::string preset_text(const Profile& profile, const std::string& name) {
  const Rates& rates = profile.rates;
  // The peaks are the highest rates, so that every share is a share of such a value.
  const double flops = std::max(rates.attention_prefill, *std::ranges::max_element(rates.gemm));
  const double bytes = std::max({rates.gemv, rates.attention_decode, rates.elementwise});
  const auto value = [&](const std::string& text, const std::string& detail = {}) {
    return fmt::format("{{v: {}, src: {}, cite: '{}{}'}}", text, profile.source, profile.cite, detail);
  };
  const auto share = [&](double part, double of) {
    return value(fmt::format("{:.4f}", std::clamp(part / of, 0.001, 1.0)));
  };
  std::vector<std::string> products;
  for (const double rate : rates.gemm) products.push_back(rate_text(rate));
  const std::string matrix = fmt::format(", {} x {} matrix", kSide, kSide);
  const std::string from_gpu = fmt::format(", copies to the GPU; from it {:.2f} GB/s", profile.from_gpu * 1e-9);
  return fmt::format(
      "  {}:\n"
      "    doc: {} with its link, {}.\n"
      "    values:\n"
      "      fp16_rate: {}\n"
      "      memory_bandwidth: {}\n"
      "      memory: {}\n"
      "      kernel_launch: {}\n"
      "      efficiency:\n"
      "        gemv: {}\n"
      "        attention_prefill: {}\n"
      "        attention_decode: {}\n"
      "        elementwise: {}\n"
      "      gemm_by_rows:\n"
      "        rows: {}\n"
      "        rates: {}\n"
      "      link:\n"
      "        bandwidth: {}\n",
      name, profile.gpu, profile.source == "measured" ? "as measured" : "from a model",
      value(fmt::format("{:.1f} TFLOPS", flops * 1e-12)), value(fmt::format("{:.0f} GB/s", bytes * 1e-9)),
      value(fmt::format("{} MiB", profile.memory.value >> 20)), value(fmt::format("{:.0f} ns", rates.launch_s * 1e9)),
      share(rates.gemv, bytes), share(rates.attention_prefill, flops), share(rates.attention_decode, bytes),
      share(rates.elementwise, bytes), value(fmt::format("[{}]", fmt::join(kRows, ", ")), matrix),
      value(fmt::format("[{}]", fmt::join(products, ", ")), matrix),
      value(fmt::format("{:.2f} GB/s", profile.to_gpu * 1e-9), from_gpu));
}

}  // namespace

int profile_gpu(const ProfileGpuArguments& arguments) {
  if (!arguments.scenario && !arguments.overrides.empty()) throw UserError("profile-gpu: --set belongs to --scenario");
  const Profile profile = arguments.scenario ? of_model(*arguments.scenario, arguments.overrides) : of_machine();
  const std::string name = arguments.name.empty() ? preset_name(profile.gpu, profile.source) : arguments.name;
  std::string text = fmt::format(
      "# Written by csdsim profile-gpu. In a scenario: presets: [{}], platform: {{gpu: {{preset: {}}}}}\n"
      "{}kind: gpu\n"
      "presets:\n",
      arguments.out.filename().string(), name,
      profile.conditions.empty() ? "" : fmt::format("# {}.\n", profile.conditions));
  text += preset_text(profile, name);
  report::write_file(arguments.out, text);
  print_result(fmt::format("{}\nwritten to {}\n", text, arguments.out.string()));
  return 0;
}

}  // namespace csdsim::app
