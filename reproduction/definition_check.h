// Checks of a definition that concern several of its parts.
#pragma once

#include "base/config/diagnostics.h"
#include "reproduction/definition.h"

namespace csdsim::reproduction {

/// Reports names of points and rows that do not exist, names and ids that exist twice, and points that nothing uses.
void check_definition(const Definition& definition, config::Diagnostics& diagnostics);

}  // namespace csdsim::reproduction
