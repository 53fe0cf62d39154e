// Numbers in result documents and configurations, by name.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace csdsim::report {

/// The value at "a.b.0.c", where numbers index lists; nullptr if there is none.
const nlohmann::ordered_json* find_path(const nlohmann::ordered_json& document, std::string_view path);

/// A metric of a result document by its flat name, or a number, truth value (1 or 0) or statistic ({value, unit, ...})
/// at a path of the document. Without value: there is no such number.
std::optional<double> metric_of(const nlohmann::ordered_json& result, const std::string& name);

/// The flat names of all metrics.
std::vector<std::string> metric_names(const nlohmann::ordered_json& result);

/// The number at a path of a configuration: a count, or a ratio such as "1/8".
std::optional<double> axis_value(const nlohmann::ordered_json& config, std::string_view path);

}  // namespace csdsim::report
