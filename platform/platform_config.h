// The configuration of the modelled machine: GPU, host, drives and their links, as resolved values with units.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/param.h"
#include "base/quantity.h"
#include "csd_model/device_config.h"
#include "host_runtime/core/machine/file_config.h"
#include "host_runtime/core/machine/gpu_config.h"
#include "nvme_if/core/link_config.h"

namespace csdsim::platform {

struct PlatformParams;

/// Section `platform.gpu`: the GPUs, which are alike, and how each is attached.
struct AttachedGpu : host::GpuConfig {
  AttachedGpu();  ///< not inline, to avoid a false -Wmaybe-uninitialized warning of GCC 12
  std::uint32_t count = 1;
  nvme::GpuLinkConfig link;
};

/// Section `platform.host`.
struct HostConfig {
  std::string preset;
  std::uint32_t cores = 26;
  std::optional<std::uint32_t> gpu_lanes;  ///< PCIe lanes for GPUs; unset: as many as the GPUs have
  Bytes memory = Bytes::gib(96);
  ComputeRate core_rate{140'800'000'000};
  Bandwidth memory_bandwidth{187'700'000'000};
  Ratio efficiency = Ratio::of(8, 10);
  SimTime io_overhead{};
  std::optional<std::uint32_t> io_cores;  ///< cores that serve the I/O queues of all drives; unset: all cores
  host::FileConfig file;
  host::SwapConfig swap;
};

/// Section `platform.overlap`: which stages of a layer of a mini-batch may run side by side.
struct OverlapConfig {
  bool mini_batches = true;
  bool engine_flash = true;
  bool host_drive = true;
};

/// Section `platform.root_complex`.
struct RootComplexConfig {
  std::optional<Bandwidth> bandwidth;  ///< each direction; unset: unlimited
};

/// Section `platform.switch`: a PCIe switch in front of drives.
struct SwitchConfig {
  Bandwidth bandwidth{28'400'000'000};  ///< bandwidth of the upstream link, each direction
  std::optional<std::uint32_t> drives;  ///< the first ones are behind it; unset: all
  std::uint32_t gpus = 0;               ///< the first ones are behind it
};

/// Section `platform`.
struct PlatformConfig {
  AttachedGpu gpu;
  HostConfig host;
  RootComplexConfig root_complex;
  std::optional<SwitchConfig> upstream;  ///< section `switch`
  csd_model::DeviceConfig device;
  OverlapConfig overlap;
};

void describe(ParamVisitor& v, AttachedGpu& c);
void describe(ParamVisitor& v, HostConfig& c);
void describe(ParamVisitor& v, RootComplexConfig& c);
void describe(ParamVisitor& v, SwitchConfig& c);
void describe(ParamVisitor& v, OverlapConfig& c);
void describe(ParamVisitor& v, PlatformConfig& c);

/// Parameters of a Platform with the given configuration, whose drives have the configuration `drive`.
PlatformParams platform_params(const PlatformConfig& config, const csd_model::DriveConfig& drive);

}  // namespace csdsim::platform
