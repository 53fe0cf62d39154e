#include "report/result_lookup.h"

#include <charconv>

#include "base/error.h"
#include "base/param_codec.h"
#include "base/ratio.h"

namespace csdsim::report {

using nlohmann::ordered_json;

const ordered_json* find_path(const ordered_json& document, std::string_view path) {
  const ordered_json* at = &document;
  while (true) {
    const std::size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    if (at->is_array()) {
      std::size_t index = 0;
      const auto end = key.data() + key.size();
      if (std::from_chars(key.data(), end, index) != std::from_chars_result{end, {}} || index >= at->size())
        return nullptr;
      at = &(*at)[index];
    } else {
      if (!at->is_object() || !at->contains(key)) return nullptr;
      at = &(*at)[key];
    }
    if (dot == std::string_view::npos) return at;
    path.remove_prefix(dot + 1);
  }
}

std::optional<double> metric_of(const ordered_json& result, const std::string& name) {
  const ordered_json* value = nullptr;
  if (const ordered_json* const metrics = find_path(result, "metrics");
      metrics != nullptr && metrics->is_object() && metrics->contains(name))
    value = &(*metrics)[name];
  else
    value = find_path(result, name);
  if (value != nullptr && value->is_object() && value->contains("value")) value = &(*value)["value"];
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>() ? 1 : 0;
  if (!value->is_number()) return std::nullopt;
  return value->get<double>();
}

std::vector<std::string> metric_names(const ordered_json& result) {
  std::vector<std::string> names;
  if (const ordered_json* const metrics = find_path(result, "metrics"); metrics != nullptr)
    for (const auto& [name, value] : metrics->items()) names.push_back(name);
  return names;
}

std::optional<double> axis_value(const ordered_json& config, std::string_view path) {
  const ordered_json* const value = find_path(config, path);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  if (!value->is_string()) return std::nullopt;
  try {
    return Codec<Ratio>::parse(value->get<std::string>()).value();
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace csdsim::report
