// The parameters of systems whose framework adds time to every step.
#pragma once

#include "base/param.h"
#include "host_runtime/core/machine/software_time.h"

namespace csdsim::host {

/// `software_per_step` and `software_per_generated_token`.
void describe_software(ParamVisitor& v, SoftwareTime& software);

/// UserError if they are set, for a run whose software takes its own time.
void refuse_software(const SoftwareTime& software);

}  // namespace csdsim::host
