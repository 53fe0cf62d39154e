#include "host_runtime/cuda/conditions.h"

#include <dlfcn.h>

#include <array>
#include <memory>
#include <optional>

#include "host_runtime/cuda/cuda_check.h"

namespace csdsim::host::cuda {
namespace {

// As much of nvml.h as is called here, which need not be installed.
using NvmlDevice = struct nvmlDevice_st*;
constexpr int kNvmlSuccess = 0;
enum NvmlClock : int { kSmClock = 1, kMemoryClock = 2 };

struct Close {
  void operator()(void* library) const { dlclose(library); }
};

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) return;
    int (*const init)() = find<int (*)()>("nvmlInit_v2");
    shutdown_ = find<int (*)()>("nvmlShutdown");
    ready_ = init != nullptr && shutdown_ != nullptr && init() == kNvmlSuccess;
  }
  ~Nvml() {
    if (ready_) shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Null if NVML does not know the device.
  NvmlDevice device(const char* bus_id) const {
    const auto by_bus = find<int (*)(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByPciBusId_v2");
    NvmlDevice found = nullptr;
    return ready_ && by_bus != nullptr && by_bus(bus_id, &found) == kNvmlSuccess ? found : nullptr;
  }
  double clock(const char* function, NvmlDevice device, NvmlClock clock) const {
    const auto ask = find<int (*)(NvmlDevice, int, unsigned*)>(function);
    unsigned megahertz = 0;
    return ask != nullptr && ask(device, clock, &megahertz) == kNvmlSuccess ? megahertz : 0;
  }
  double power_limit_w(NvmlDevice device) const {
    const auto ask = find<int (*)(NvmlDevice, unsigned*)>("nvmlDeviceGetPowerManagementLimit");
    unsigned milliwatts = 0;
    return ask != nullptr && ask(device, &milliwatts) == kNvmlSuccess ? 1e-3 * milliwatts : 0;
  }

 private:
  template <class Function>
  Function find(const char* name) const {
    return library_ ? reinterpret_cast<Function>(dlsym(library_.get(), name)) : nullptr;
  }

  std::unique_ptr<void, Close> library_;
  int (*shutdown_)() = nullptr;
  bool ready_ = false;
};

double attribute_mhz(cudaDeviceAttr attribute, int device) {
  int kilohertz = 0;
  if (cudaDeviceGetAttribute(&kilohertz, attribute, device) == cudaSuccess) return 1e-3 * kilohertz;
  cudaGetLastError();
  return 0;
}

}  // namespace

Conditions present_conditions() {
  int device = 0;
  CSDSIM_CUDA(cudaGetDevice(&device));
  std::array<char, 32> bus_id{};
  const Nvml nvml;
  const bool known = cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device) == cudaSuccess;
  if (const NvmlDevice of = known ? nvml.device(bus_id.data()) : nullptr; of != nullptr) {
    return {.sm_mhz = nvml.clock("nvmlDeviceGetClockInfo", of, kSmClock),
            .memory_mhz = nvml.clock("nvmlDeviceGetClockInfo", of, kMemoryClock),
            .most_sm_mhz = nvml.clock("nvmlDeviceGetMaxClockInfo", of, kSmClock),
            .most_memory_mhz = nvml.clock("nvmlDeviceGetMaxClockInfo", of, kMemoryClock),
            .power_limit_w = nvml.power_limit_w(of),
            .source = "NVML"};
  }
  return {.sm_mhz = 0,
          .memory_mhz = 0,
          .most_sm_mhz = attribute_mhz(cudaDevAttrClockRate, device),
          .most_memory_mhz = attribute_mhz(cudaDevAttrMemoryClockRate, device),
          .power_limit_w = 0,
          .source = "CUDA"};
}

}  // namespace csdsim::host::cuda
