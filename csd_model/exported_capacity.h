// The capacity of the block namespace of a drive, as its host sees it.
#pragma once

#include <optional>

#include "base/units.h"
#include "csd_model/device_config.h"
#include "csd_model/drive_config.h"

namespace csdsim::csd_model {

/// Bytes that the block namespace of such a drive exports: what its FTL computes. UserError for a drive that cannot be
/// built.
Bytes exported_capacity(const DriveConfig& config);

/// The same of what a user says; `kv_share` of the erase blocks are for the KV namespace.
Bytes exported_capacity(const DeviceConfig& device, double kv_share = 0);

/// The same for checks; nothing for a drive that cannot be built, which checks of its parts refuse.
std::optional<Bytes> exported_capacity_if_any(const DeviceConfig& device, double kv_share = 0);

}  // namespace csdsim::csd_model
