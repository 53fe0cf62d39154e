// Write amplification and its parts as metrics.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ftl/core/write_work.h"

namespace csdsim::experiment {

/// Adds `prefix`write_amplification and, where the host has written, its parts: write_amplification_host and so on.
void add_write_amplification(nlohmann::ordered_json& metrics, const std::string& prefix, const ftl::WriteWork& work);

}  // namespace csdsim::experiment
