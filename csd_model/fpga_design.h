// The units in the FPGA of a drive.
#pragma once

#include "attention_engine/core/fpga_resources.h"
#include "csd_model/device_config.h"

namespace csdsim::csd_model {

/// The units of a drive with an attention engine.
engine::FpgaDesign fpga_design(const DeviceConfig& device);

/// The FPGA that the drive names.
const engine::Fpga& fpga_of(const DeviceConfig& device);

}  // namespace csdsim::csd_model
