// The dump that a drive with capacitors writes to flash when the power fails.
#pragma once

#include "base/units.h"
#include "csd_model/device_config.h"

namespace csdsim::csd_model {

/// Writing `size` bytes of the write buffer to flash, in whole word lines on all planes side by side: their pages cross
/// the channels, then all planes program, round by round. The energy is that of
/// energy() for this work and time, without an attention engine.
PowerLossDump power_loss_dump(const DeviceConfig& device, Bytes size);

/// The largest number of bytes, in whole word lines and at most `size`, whose dump takes no more than `energy`.
Bytes bytes_dumped(const DeviceConfig& device, Energy energy, Bytes size);

}  // namespace csdsim::csd_model
