// Puts a page together from its parts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace csdsim::report {

/// The template page `file` with title, style, data, Chart.js and a script.
std::string filled_page(std::string_view file, std::string_view title, const nlohmann::ordered_json& data,
                        const std::string& script);

}  // namespace csdsim::report
