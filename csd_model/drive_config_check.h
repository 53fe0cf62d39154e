// Checks of a drive's configuration.
#pragma once

#include "csd_model/drive_config.h"

namespace csdsim::csd_model {

/// Throws UserError that names the first field which a scenario would refuse, too: for platforms that make their
/// DriveConfig themselves.
void validate(const DriveConfig& config);

}  // namespace csdsim::csd_model
