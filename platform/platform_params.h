// The parameters of the machine around the drives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "csd_model/drive_config.h"
#include "csd_model/drive_factories.h"
#include "nvme_if/core/nvme_config.h"
#include "platform/shared_links.h"

namespace csdsim::platform {

/// Parameters of a platform. platform_params() makes them from a scenario's configuration.
struct PlatformParams {
  csd_model::DriveConfig drive;
  std::uint32_t drives = 1;
  Bytes host_memory = Bytes::gib(96);
  std::uint32_t gpus = 1;
  Bytes gpu_memory = Bytes::gib(48);  ///< memory of each GPU
  SharedLinksParams shared = {};
  SimTime io_overhead;             ///< host processor time per command
  std::uint32_t io_cores = 26;     ///< host cores that the queues of all drives share
  bool overlap_host_drive = true;  ///< see DriveCommands::begin_batch()
  std::uint16_t queues = 4;
  std::uint32_t queue_depth = 1024;
  nvme::InterruptCoalescing coalescing{};
  nvme::DataPointer data_pointer = nvme::DataPointer::prp;  ///< data pointer of I/O commands
  nvme::QueuePriorities priorities{};
  bool run_ahead = false;            ///< see NvmeDriverParams
  SimTime timeout = SimTime::max();  ///< timeout of a command, see NvmeDriverParams
  std::optional<nvme::DriveLoss> loss = {};
  std::optional<nvme::PowerConfig> power = {};  ///< power of the first drive
  csd_model::EngineFactory engine = {};         ///< called once per drive; default: the attention engine of the model
  csd_model::DriveUnitFactory units = {};       ///< called for the units of each drive; default: those of the model
  /// A VCD file with the waveforms of all drives, whose fidelity must be `at`; see Waveforms.
  std::optional<std::filesystem::path> waveforms = {};
};

}  // namespace csdsim::platform
