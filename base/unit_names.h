// Names of units, for whatever describes quantities without parsing them.
#pragma once

#include <string_view>
#include <vector>

namespace csdsim {

/// Units that base/quantity.h reads of a "time", "size", "bandwidth", "frequency", "compute rate", "energy" or "power";
/// none for anything else.
std::vector<std::string_view> unit_names(std::string_view quantity);

}  // namespace csdsim
