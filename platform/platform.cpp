#include "platform/platform.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "nvme_if/sysc/stated_memory.h"
#include "platform/queue_memory.h"

namespace csdsim::platform {

using nvme::MemoryRegion;
using nvme::PhysicalAddress;
using nvme::RegionKind;

namespace {

/// What the link of a drive carries; it matters where links are shared only.
Bandwidth drive_rate(const PlatformParams& config) {
  return config.shared.limited() ? config.drive.link.payload_bandwidth() : Bandwidth{1};
}

MemoryRegion gpu_region(const PlatformParams& config, std::uint32_t gpu) {
  return {.name = gpu == 0 ? "gpu_bar" : fmt::format("gpu_bar{}", gpu),
          .base = Platform::gpu_base(gpu),
          .size = config.gpu_memory,
          .kind = RegionKind::gpu_memory};
}

}  // namespace

Platform::Platform(const PlatformParams& config)
    : config_(config), shared_links_(config.shared, config.drives, drive_rate(config), config.gpus) {
  const MemoryRegion host{"host_dram", PhysicalAddress{0}, config.host_memory, RegionKind::host_dram};
  const nvme::RegionId host_region = map_.add(host);
  std::vector<nvme::RegionId> gpu_regions;
  for (std::uint32_t gpu = 0; gpu < config.gpus; ++gpu) gpu_regions.push_back(map_.add(gpu_region(config, gpu)));
  host_memory_ = nvme::make_memory("host_dram", config.host_memory, "platform.host.memory");
  fabric_ = std::make_unique<nvme::PcieFabric>("fabric", map_);
  fabric_->region(host_region).bind(host_memory_->target);
  for (std::uint32_t gpu = 0; gpu < config.gpus; ++gpu) {
    const std::string name = gpu == 0 ? "gpu_memory" : fmt::format("gpu_memory{}", gpu);
    gpu_memory_.push_back(nvme::make_memory(name, config.gpu_memory, "platform.gpu.memory"));
    fabric_->region(gpu_regions[gpu]).bind(gpu_memory_.back()->target);
  }

  const Bytes queues = queue_memory(config.queues, config.queue_depth, config.drive.nvme.controller.mdts);
  io_cores_ = std::make_shared<nvme::HostCores>(config.io_cores);
  for (std::uint32_t i = 0; i < config.drives; ++i) {
    auto slot = std::make_unique<Slot>();
    for (const MemoryRegion& region : map_.regions()) slot->map.add(region);
    shared_links_.add_drive(i, slot->map, host_region, gpu_regions);
    csd_model::DriveConfig drive = config.drive;
    if (config.loss && config.loss->drive == i) drive.nvme.disappears_at = config.loss->at;
    slot->drive = std::make_unique<csd_model::Drive>(fmt::format("drive{}", i).c_str(), drive, &slot->map,
                                                     config.engine, config.units);
    slot->driver = std::make_unique<nvme::NvmeDriver>(
        fmt::format("driver{}", i).c_str(), nvme::NvmeDriverParams{.queue_memory = {free_host_, queues},
                                                                   .queues = config.queues,
                                                                   .queue_depth = config.queue_depth,
                                                                   .io_overhead = config.io_overhead,
                                                                   .coalescing = config.coalescing,
                                                                   .data_pointer = config.data_pointer,
                                                                   .priorities = config.priorities,
                                                                   .cores = io_cores_,
                                                                   .first_core = i * config.queues,
                                                                   .run_ahead = config.run_ahead,
                                                                   .timeout = config.timeout,
                                                                   .drive = fmt::format("drive {}", i),
                                                                   .may_lose_controller = drive.may_lose_power});
    slot->driver->bar.bind(slot->drive->bar);
    slot->driver->memory.bind(fabric_->target);
    slot->drive->dma.bind(fabric_->target);
    slot->drive->interrupt.bind(*slot->driver);
    free_host_.value += queues.value;
    if (free_host_.value > config.host_memory.value)
      throw UserError(fmt::format("platform.host.memory: {} MiB do not hold the queues of {} drives, {} MiB each",
                                  config.host_memory.value >> 20, config.drives, queues.value >> 20));
    drives_.push_back(std::move(slot));
  }
  if (config.power) power_cuts_ = std::make_unique<PowerCuts>(*config.power, drive(0), driver(0));
  if (!config.waveforms) return;
  if (config.drive.fidelity != csd_model::Fidelity::at) throw UserError("waveforms need platform.device.fidelity: at");
  waveforms_ = std::make_unique<Waveforms>(*config.waveforms);
  for (const auto& slot : drives_) waveforms_->add(*slot->drive);
}

Platform::~Platform() = default;

void Platform::on_ready(std::function<void()> callback) {
  const auto missing = std::make_shared<std::size_t>(drives_.size());
  for (const auto& slot : drives_)
    slot->driver->on_ready([missing, callback] {
      if (--*missing == 0) callback();
    });
}

nvme::RegionTraffic Platform::traffic(RegionKind kind) const {
  nvme::RegionTraffic sum;
  for (const auto& slot : drives_) {
    const nvme::RegionTraffic one = slot->map.traffic(kind);
    sum.bytes_to_region += one.bytes_to_region;
    sum.bytes_from_region += one.bytes_from_region;
  }
  return sum;
}

}  // namespace csdsim::platform
