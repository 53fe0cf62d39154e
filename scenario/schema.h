// The JSON Schema of scenario files, for editors.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "scenario/registries.h"

namespace csdsim::scenario {

/// A schema (draft 7) made of the descriptions of all parameters. It knows keys, types, ranges of counts and the keys
/// of each kind. It accepts every valid scenario; `csdsim check` finds more mistakes, such as ranges of quantities and
/// what does not fit together.
nlohmann::ordered_json scenario_schema(const std::shared_ptr<const Registries>& registries);

}  // namespace csdsim::scenario
