// The offload systems by name.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "host_runtime/core/planner/planner.h"

namespace csdsim::host {

struct SystemEntry {
  std::string_view name;         ///< `system.kind` of a scenario
  std::string_view description;  ///< one sentence
  std::unique_ptr<Planner> (*make)(const PlannerInputs& inputs);
};

/// All systems, in the order in which they are listed to users.
std::span<const SystemEntry> systems();

/// UserError that lists the names for an unknown one; otherwise the errors of the system.
std::unique_ptr<Planner> make_planner(std::string_view name, const PlannerInputs& inputs);

}  // namespace csdsim::host
