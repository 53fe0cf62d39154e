// The offload systems that csdsim comes with.
#pragma once

#include <string_view>

#include "host_runtime/core/planner/system.h"

namespace csdsim::host {

/// In the order in which they are listed to users; the first is the default of a scenario.
SystemKinds builtin_systems();

/// The first system of `systems` that keeps K and V in drives and whose attention is this method. UserError, which
/// lists the methods that have one, if there is none.
std::string_view drive_system_of(const SystemKinds& systems, std::string_view method);

}  // namespace csdsim::host
