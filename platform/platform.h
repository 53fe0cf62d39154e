// The machine around the drives: host memory, GPU memory, the fabric that joins them, and one NVMe driver per drive.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <systemc>
#include <vector>

#include "csd_model/drive.h"
#include "nvme_if/sysc/nvme_driver.h"
#include "nvme_if/sysc/pcie_fabric.h"
#include "nvme_if/sysc/physical_memory.h"
#include "platform/platform_params.h"
#include "platform/power_cuts.h"
#include "platform/shared_links.h"
#include "simulation/waveforms.h"

namespace csdsim::platform {

/// Owns all modules of a simulation. Create it before the simulation starts, in a separate simulation context. Host
/// DRAM starts at physical address 0, the BAR of GPU i at gpu_base(i); a drive accesses each of them directly.
class Platform {
 public:
  static constexpr std::uint64_t kGpuBase = std::uint64_t{1} << 44;  ///< address of the first GPU
  static constexpr nvme::PhysicalAddress gpu_base(std::uint32_t gpu) {
    return nvme::PhysicalAddress{kGpuBase * (gpu + std::uint64_t{1})};
  }

  explicit Platform(const PlatformParams& config);
  ~Platform();

  std::uint32_t drives() const { return static_cast<std::uint32_t>(drives_.size()); }
  csd_model::Drive& drive(std::uint32_t index) { return *drives_.at(index)->drive; }
  nvme::NvmeDriver& driver(std::uint32_t index) { return *drives_.at(index)->driver; }
  std::uint32_t gpus() const { return static_cast<std::uint32_t>(gpu_memory_.size()); }
  nvme::PhysicalMemory& gpu_memory(std::uint32_t gpu = 0) { return *gpu_memory_.at(gpu); }
  nvme::PhysicalMemory& host_memory() { return *host_memory_; }
  SharedLinks& shared_links() { return shared_links_; }
  /// The host's cores that submit the commands of all drives.
  nvme::HostCores& io_cores() { return *io_cores_; }
  const nvme::HostCores& io_cores() const { return *io_cores_; }
  const PlatformParams& config() const { return config_; }

  /// First address of host DRAM that no driver uses.
  nvme::PhysicalAddress free_host_memory() const { return free_host_; }

  /// Calls `callback` when every driver has enabled its controller.
  void on_ready(std::function<void()> callback);

  /// Cuts of the power; null where there are none.
  PowerCuts* power_cuts() { return power_cuts_.get(); }

  /// Payload that the drives moved to and from regions of `kind`.
  nvme::RegionTraffic traffic(nvme::RegionKind kind) const;

 private:
  struct Slot {
    nvme::MemoryMap map;  ///< the memory map of this drive's DMA, with separate traffic counters
    std::unique_ptr<csd_model::Drive> drive;
    std::unique_ptr<nvme::NvmeDriver> driver;
  };

  PlatformParams config_;
  nvme::MemoryMap map_;
  SharedLinks shared_links_;
  std::unique_ptr<nvme::PhysicalMemory> host_memory_;
  std::vector<std::unique_ptr<nvme::PhysicalMemory>> gpu_memory_;
  std::unique_ptr<nvme::PcieFabric> fabric_;
  std::shared_ptr<nvme::HostCores> io_cores_;
  std::vector<std::unique_ptr<Slot>> drives_;
  std::unique_ptr<PowerCuts> power_cuts_;
  std::unique_ptr<Waveforms> waveforms_;
  nvme::PhysicalAddress free_host_{Bytes::mib(2).value};  ///< address 0 stays unused
};

}  // namespace csdsim::platform
