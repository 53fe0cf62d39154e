// The built-in offload systems.
#pragma once

#include <string_view>

#include "host_runtime/core/plan/system.h"

namespace csdsim::host {

/// The built-in systems in the order of `csdsim list`; the first is the default of a scenario.
SystemKinds builtin_systems();

/// The first system of `systems` that keeps K and V in drives and attends by this method. If there is none, throws
/// UserError that lists the supported methods.
std::string_view drive_system_of(const SystemKinds& systems, std::string_view method);

}  // namespace csdsim::host
