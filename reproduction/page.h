// The page of `csdsim report` about a reproduction.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace csdsim::reproduction {

/// One page about reproduction.json: what disagrees, constants, stated against simulated, contradictions, pictures. All
/// but the pictures is there without JavaScript, too.
std::string page_of(const nlohmann::ordered_json& document);

}  // namespace csdsim::reproduction
