// Puts a page together from its parts.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace csdsim::report {

/// The template page `file` with title, style, data, Chart.js, a script, and `parts` in place of further marks such as
/// "@BODY@".
std::string filled_page(std::string_view file, std::string_view title, const nlohmann::ordered_json& data,
                        const std::string& script, std::map<std::string_view, std::string> parts = {});

}  // namespace csdsim::report
