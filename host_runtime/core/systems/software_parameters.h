// The parameter of systems whose framework adds time to every step.
#pragma once

#include "base/param.h"
#include "base/units.h"

namespace csdsim::host {

/// `software_per_step`.
void describe_software(ParamVisitor& v, SimTime& per_step);

/// UserError if it is set, for a run whose software takes its own time.
void refuse_software(SimTime per_step);

}  // namespace csdsim::host
