#include "host_runtime/core/planner/systems/systems.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/planner/systems/instinfer.h"

namespace csdsim::host {

namespace {

constexpr std::array<SystemEntry, 2> kSystems{{
    {"instinfer-dense", "InstInfer with dense attention in the drives",
     [](const PlannerInputs& inputs) -> std::unique_ptr<Planner> {
       return std::make_unique<InstInfer>(inputs, DriveMethod::dense);
     }},
    {"instinfer-sparf", "InstInfer with SparF, SparQ loaded page by page in two steps, in the drives",
     [](const PlannerInputs& inputs) -> std::unique_ptr<Planner> {
       return std::make_unique<InstInfer>(inputs, DriveMethod::sparf);
     }},
}};

}  // namespace

std::span<const SystemEntry> systems() { return kSystems; }

std::unique_ptr<Planner> make_planner(std::string_view name, const PlannerInputs& inputs) {
  std::vector<std::string_view> names;
  for (const SystemEntry& entry : kSystems) {
    if (entry.name == name) return entry.make(inputs);
    names.push_back(entry.name);
  }
  throw UserError(fmt::format("system '{}' is unknown; known: {}", name, fmt::join(names, ", ")));
}

}  // namespace csdsim::host
