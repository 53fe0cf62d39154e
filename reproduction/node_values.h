// Values of a configuration tree as JSON and as flow YAML.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/config/node.h"

namespace csdsim::reproduction {

/// Lists and maps stay lists and maps. A scalar that is a number in decimal notation becomes a number, `true` and
/// `false` become booleans, all else a text; no value becomes null.
nlohmann::ordered_json json_of(const config::Node& node);

/// The value in one line, as `--set PATH=VALUE` reads it; scalars keep their spelling.
std::string flow_text(const config::Node& node);

}  // namespace csdsim::reproduction
