// The built-in offload systems, and the features of a run.
#pragma once

#include <string_view>

#include "host_runtime/core/plan/lost_rows.h"
#include "host_runtime/core/plan/system.h"

namespace csdsim::host {

/// The built-in systems in the order of `csdsim list`; the first is the default of a scenario.
SystemKinds builtin_systems();

/// The first system of `systems` that keeps K and V in drives and attends by this method. If there is none, throws
/// UserError that lists the supported methods.
std::string_view drive_system_of(const SystemKinds& systems, std::string_view method);

/// The features of a run: those of its system, and that of lost K and V unless the run stops at them.
RunFeatures features_of(const OffloadSystem& system, const PlannerInputs& inputs, LostKv lost_kv);

}  // namespace csdsim::host
