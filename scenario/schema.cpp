#include "scenario/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/dump.h"
#include "base/unit_names.h"
#include "scenario/catalog.h"
#include "scenario/load.h"
#include "scenario/presets.h"
#include "scenario/scenario.h"

namespace csdsim::scenario {
namespace {

using config::ParamRow;
using config::ParamTable;
using config::SectionRow;
using nlohmann::ordered_json;

std::vector<std::string> parts_of(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (std::size_t at; (at = text.find(separator)) != std::string_view::npos; text.remove_prefix(at + separator.size()))
    parts.emplace_back(text.substr(0, at));
  parts.emplace_back(text);
  return parts;
}

/// A word as its reader may take it: YAML 1.1 reads off and no as false, on and yes as true.
ordered_json word_schema(const std::string& word) {
  if (word == "off" || word == "no") return {{"enum", {word, false}}};
  if (word == "on" || word == "yes") return {{"enum", {word, true}}};
  return {{"const", word}};
}

/// A name may be written as a number, kv_bits: 8, and be read as a boolean.
ordered_json names_schema(std::string_view names) {
  ordered_json values = ordered_json::array();
  for (const std::string& name : parts_of(names, ", ")) {
    const ordered_json read = word_schema(name);
    if (read.contains("enum"))
      values.insert(values.end(), read["enum"].begin(), read["enum"].end());
    else
      values.push_back(name);
    if (name.find_first_not_of("0123456789") == std::string::npos) values.push_back(std::stoull(name));
  }
  return {{"enum", values}};
}

ordered_json any_of(const ordered_json& a, const ordered_json& b) { return {{"anyOf", {a, b}}}; }

ordered_json count_schema(std::string_view range) {
  ordered_json schema{{"type", "integer"}, {"minimum", 0}};
  const std::vector<std::string> ends = parts_of(range, " to ");
  if (ends.size() != 2 || range.find("items") != std::string_view::npos) return schema;
  schema["minimum"] = std::stoull(ends[0]);
  schema["maximum"] = std::stoull(ends[1]);
  return schema;
}

ordered_json list_schema(const ordered_json& items, std::string_view range) {
  ordered_json schema{{"type", "array"}, {"items", items}};
  if (!range.ends_with(" items")) return schema;
  const std::vector<std::string> ends = parts_of(range.substr(0, range.size() - 6), " to ");
  schema["minItems"] = std::stoull(ends.front());
  schema["maxItems"] = std::stoull(ends.back());
  return schema;
}

/// Names of presets: the built-in ones, unless the scenario names files with others.
ordered_json preset_schema(std::string_view kind) {
  return {{"type", "string"}, {"examples", Presets::builtin().names(kind)}};
}

/// The schema of a type as Param::type() names it.
ordered_json type_schema(std::string_view type, std::string_view range) {
  if (type == "true or false") return {{"type", "boolean"}};
  if (const std::size_t list = type.find(", list of "); list != std::string_view::npos && type.find(", or ") > list) {
    const ordered_json one = type_schema(type.substr(0, list), range);
    const std::size_t none = type.rfind(", or ");
    return {{"anyOf", {one, list_schema(one, ""), word_schema(std::string(type.substr(none + 5)))}}};
  }
  if (type.starts_with("list of ")) return list_schema(type_schema(type.substr(8), ""), range);
  if (const std::size_t none = type.find(" or "); none != std::string_view::npos)
    return any_of(type_schema(type.substr(0, none), range), word_schema(std::string(type.substr(none + 4))));
  if (type.starts_with("one of ")) return names_schema(type.substr(7));
  if (const std::size_t word = type.rfind(", "); word != std::string_view::npos)  // count, auto or adaptive
    return any_of(type_schema(type.substr(0, word), range), word_schema(std::string(type.substr(word + 2))));
  constexpr std::string_view kPreset = "name of a ", kShorthand = "name of one of the ";
  if (type.starts_with(kShorthand))
    return preset_schema(type.substr(kShorthand.size(), type.size() - kShorthand.size() - 1));
  if (type.starts_with(kPreset)) return preset_schema(parts_of(type.substr(kPreset.size()), " ").front());
  if (type == "count") return count_schema(range);
  if (type == "ratio") return {{"type", {"number", "string"}}};
  if (type == "map of values" || type == "map") return {{"type", "object"}};
  if (type == "path" || type == "text") return {{"type", {"string", "number"}}};
  // What base/quantity.h reads: a decimal number, perhaps with an exponent, and a unit. A u may be a micro sign
  // (U+00B5) or a Greek mu (U+03BC).
  std::vector<std::string> units;
  for (const std::string_view unit : unit_names(type))
    units.push_back(unit.starts_with('u') ? fmt::format("[u\u00b5\u03bc]{}", unit.substr(1)) : std::string(unit));
  return {{"type", "string"},
          {"pattern",
           fmt::format(R"(^\s*(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*({})\s*$)", fmt::join(units, "|"))}};
}

std::string description(const ParamRow& row) {
  std::string text = row.doc;
  if (!row.range.empty()) text += fmt::format(" Range: {}.", row.range);
  text += fmt::format(" Default: {} [{}: {}]", row.value, to_string(row.cite.source), row.cite.where);
  if (!row.kinds.empty()) text += fmt::format(" Of kind {}.", fmt::join(row.kinds, ", "));
  return text;
}

class SchemaMaker {
 public:
  explicit SchemaMaker(ParamTable table) : table_(std::move(table)) {}

  ordered_json map_schema(const SectionRow& section) const {
    ordered_json properties = ordered_json::object();
    for (const ParamRow& row : table_.rows) {
      if (row.section != section.path) continue;
      ordered_json schema = type_schema(row.type, row.range);
      if (properties.contains(row.name)) {
        ordered_json& other = properties[row.name];
        schema = any_of(std::exchange(other, nullptr), schema);
      }
      schema["description"] = description(row);
      properties[row.name] = std::move(schema);
    }
    for (const SectionRow& child : table_.sections) {
      if (!is_child(child.path, section.path)) continue;
      const std::string name = child.path.substr(section.path.empty() ? 0 : section.path.size() + 1);
      ordered_json schema = map_schema(child);
      // A section that may be left out is a parameter, too: "map or off".
      for (const ParamRow& row : table_.rows)
        if (row.path == child.path && row.type.starts_with("map or "))
          schema = any_of(schema, word_schema(row.type.substr(7)));
      properties[name] = std::move(schema);
    }
    ordered_json schema{{"type", "object"},
                        {"description", section.doc},
                        {"properties", std::move(properties)},
                        {"additionalProperties", false}};
    ordered_json kinds = ordered_json::array();
    for (const std::string& kind : section.kinds)
      if (ordered_json others = names_of_others(section, kind); !others.empty())
        kinds.push_back({{"if", {{"properties", {{"kind", {{"const", kind}}}}}, {"required", {"kind"}}}},
                         {"then", {{"properties", std::move(others)}}}});
    if (!kinds.empty()) schema["allOf"] = std::move(kinds);
    return schema;
  }

 private:
  static bool is_child(std::string_view path, std::string_view parent) {
    if (path.empty() || path == parent) return false;
    if (!parent.empty() && !path.starts_with(fmt::format("{}.", parent))) return false;
    return path.find('.', parent.empty() ? 0 : parent.size() + 1) == std::string_view::npos;
  }

  /// The parameters of other kinds only, each as a schema that nothing meets.
  ordered_json names_of_others(const SectionRow& section, const std::string& kind) const {
    std::map<std::string, bool> has;
    for (const ParamRow& row : table_.rows)
      if (row.section == section.path) {
        // A kind of a map around this one says nothing here.
        const bool of_kind = std::ranges::any_of(row.kinds, [&](const std::string& k) {
          return std::ranges::find(section.kinds, k) != section.kinds.end();
        });
        has[row.name] = has[row.name] || !of_kind || std::ranges::find(row.kinds, kind) != row.kinds.end();
      }
    ordered_json others = ordered_json::object();
    for (const auto& [name, own] : has)
      if (!own) others[name] = false;
    return others;
  }

  ParamTable table_;
};

ordered_json texts_schema(std::string_view doc) {
  return {{"description", doc},
          {"anyOf", {{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}}}}};
}

/// The section `sweep` (scenario/sweep.h).
ordered_json sweep_schema(const std::vector<std::string>& paths) {
  const ordered_json axes{{"type", "object"},
                          {"propertyNames", {{"enum", paths}}},
                          {"additionalProperties", {{"type", {"array", "string"}}, {"minItems", 1}}}};
  ordered_json schema{{"type", "object"}, {"description", "Runs many points (docs/sweeps.md)."}};
  ordered_json& properties = schema["properties"];
  properties["axes"] = axes;
  properties["axes"]["description"] = "Path of a parameter: list of values, or a range such as 2..32 step 2.";
  properties["zip"] = axes;
  properties["zip"]["description"] = "Axes that advance together.";
  properties["where"] = texts_schema("Conditions over the axes; points that do not meet them are left out.");
  properties["maximize"] = texts_schema("Metrics to maximize: the best points are printed.");
  properties["minimize"] = texts_schema("Metrics to minimize.");
  properties["subject_to"] = texts_schema("Conditions over metrics that the best points have to meet.");
  properties["evaluations"] = {{"type", "integer"},
                               {"minimum", 1},
                               {"maximum", kMaxSweepPoints},
                               {"description", "Points that an optimiser may look at, in place of every point."}};
  schema["additionalProperties"] = false;
  return schema;
}

/// What a schema says of presets, with their examples as the only names: what counts in scenarios without files of
/// presets.
ordered_json only_builtin_presets(const ordered_json& schema) {
  if (const auto examples = schema.find("examples"); examples != schema.end())
    return {{"if", {{"type", "string"}}}, {"then", {{"enum", *examples}}}};
  ordered_json properties = ordered_json::object();
  if (const auto of_map = schema.find("properties"); of_map != schema.end())
    for (const auto& [name, property] : of_map->items())
      if (property.is_object())
        if (ordered_json narrowed = only_builtin_presets(property); !narrowed.empty()) properties[name] = narrowed;
  if (const auto ways = schema.find("anyOf"); ways != schema.end())
    for (const ordered_json& way : *ways)
      if (const ordered_json narrowed = only_builtin_presets(way); narrowed.contains("properties"))
        properties.update(narrowed["properties"]);
  return properties.empty() ? ordered_json::object() : ordered_json{{"properties", std::move(properties)}};
}

}  // namespace

ordered_json scenario_schema(const std::shared_ptr<const Registries>& registries) {
  const SchemaMaker maker(ParamTable::of(Scenario(registries)));
  ordered_json schema{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "csdsim scenario"}};
  schema.update(maker.map_schema({"", "A scenario of csdsim.", {}, {}}));
  ordered_json& properties = schema["properties"];
  properties["csdsim"] = {{"const", 1}, {"description", "Version of the format."}};
  properties["$schema"] = {{"type", "string"}, {"description", "This schema, for editors."}};
  properties["platform"] = any_of(
      properties["platform"], {{"type", "string"}, {"description", "Another scenario file, whose platform is taken."}});
  properties["presets"] = texts_schema("Files with presets besides the built-in ones.");
  properties["plugins"] = texts_schema("Shared libraries that add systems and experiments.");
  properties["sweep"] = sweep_schema(parameter_paths(registries));
  schema["required"] = {"csdsim"};
  ordered_json builtin = only_builtin_presets(schema);
  schema["if"] = {{"not", {{"required", {"presets"}}}}};
  schema["then"] = std::move(builtin);
  return schema;
}

}  // namespace csdsim::scenario
