#include "scenario/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/config/dump.h"
#include "base/error.h"
#include "base/text.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "scenario/presets.h"
#include "scenario/scenario.h"

namespace csdsim::scenario {
namespace {

using config::Node;
using config::ParamRow;
using config::ParamTable;
using config::SectionRow;

/// A category of `list`: the presets of a kind, or the kinds of a map.
struct Category {
  std::string_view name;
  std::string_view preset_kind;
  std::string_view section;
};
/// The attention methods of `csdsim eval`; they are not part of a scenario.
constexpr std::string_view kMethods = "methods";
constexpr Category kCategories[] = {
    {"devices", "device", ""},
    {"models", "model", ""},
    {"systems", "", "system"},
    {"gpus", "gpu", ""},
    {"hosts", "host", ""},
    {"workloads", "", "workload"},
    {"mappings", "", "platform.device.ftl.mapping"},
    {kMethods, "", ""},
    {"interfaces", "interface", ""},
    {"selections", "", "simulation.selection"},
};

std::string_view last_key(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

/// True if `path` is `end`, or ends in its keys.
bool ends_in(std::string_view path, std::string_view end) {
  return path.ends_with(end) &&
         (path.size() == end.size() || (!end.empty() && path[path.size() - end.size() - 1] == '.'));
}

/// The last keys of a path, as many as `like` has; empty if it has fewer.
std::string_view last_keys(std::string_view path, std::string_view like) {
  std::size_t begin = path.size();
  for (auto left = std::ranges::count(like, '.') + 1; left > 0; --left) {
    if (begin == 0 || begin == std::string_view::npos) return {};
    begin = path.rfind('.', begin - 1);
  }
  return begin == std::string_view::npos ? path : path.substr(begin + 1);
}

using Row = std::vector<std::string>;

/// Formats rows with every column but the last padded to its widest cell.
std::string aligned(const std::vector<Row>& rows, std::string_view indent) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line(indent);
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i + 1 < row.size() ? fmt::format("{:<{}}  ", row[i], widths[i]) : row[i];
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::string source_text(const ParamRow& row) { return std::string(to_string(row.cite.source)); }
std::string meaning(const ParamRow& row) { return fmt::format("{} [{}]", row.doc, row.cite.where); }
std::string range_text(const ParamRow& row) { return row.range.empty() ? "-" : row.range; }

/// The kinds that have a parameter: " (a, b)", or " (all but c)" when that is shorter; "" outside a choice.
std::string kinds_text(const SectionRow& section, const ParamRow& row) {
  if (section.kinds.empty() || row.kinds.empty()) return "";
  std::vector<std::string> others;
  for (const std::string& kind : section.kinds) {
    if (std::find(row.kinds.begin(), row.kinds.end(), kind) == row.kinds.end()) others.push_back(kind);
  }
  const bool most = !others.empty() && others.size() < row.kinds.size();
  return most ? fmt::format(" (all but {})", join(others)) : fmt::format(" ({})", join(row.kinds));
}

/// The parameters of one map, with its kinds if it is a choice.
std::string section_text(const ParamTable& table, const SectionRow& section, std::string_view only_kind) {
  std::string out = fmt::format("{}: {}\n", section.path.empty() ? "scenario" : section.path, section.doc);
  for (std::size_t i = 0; i < section.kinds.size(); ++i) {
    if (only_kind.empty() || section.kinds[i] == only_kind) {
      out += fmt::format("  kind {}: {}\n", section.kinds[i], section.kind_docs[i]);
    }
  }
  std::vector<Row> rows{{"parameter", "default", "type", "range", "source", "meaning"}};
  for (const ParamRow& row : table.rows) {
    if (row.section != section.path) continue;
    const bool of_kind = !section.kinds.empty() && !row.kinds.empty();
    const bool of_this = std::find(row.kinds.begin(), row.kinds.end(), only_kind) != row.kinds.end();
    if (of_kind && !only_kind.empty() && !of_this) continue;
    rows.push_back(
        {row.name + kinds_text(section, row), row.value, row.type, range_text(row), source_text(row), meaning(row)});
  }
  if (rows.size() > 1) out += aligned(rows, "  ");
  return out;
}

/// Parameters by their path or key, or by their key in a map; "" without any.
std::string parameter_text(const ParamTable& table, std::string_view map, std::string_view key) {
  std::vector<Row> rows{{"parameter", "default", "type", "range", "source", "meaning"}};
  for (const SectionRow& section : table.sections)
    for (const ParamRow& row : table.rows) {
      if (row.section != section.path || (!map.empty() && !ends_in(section.path, map))) continue;
      if (!ends_in(row.path, key)) continue;
      rows.push_back(
          {row.path + kinds_text(section, row), row.value, row.type, range_text(row), source_text(row), meaning(row)});
    }
  return rows.size() > 1 ? aligned(rows, "") : "";
}

void flatten(const Node& node, const std::string& path, std::vector<Row>& rows) {
  for (const config::Entry& entry : node.entries) {
    const std::string name = path.empty() ? entry.key : fmt::format("{}.{}", path, entry.key);
    if (entry.value.is_map()) {
      flatten(entry.value, name, rows);
      continue;
    }
    const std::string& note = entry.value.origin.note;
    const auto colon = note.find(": ");
    rows.push_back({name, entry.value.scalar, note.substr(0, colon), note.substr(colon + 2)});
  }
}

std::string preset_text(std::string_view kind, const Preset& preset) {
  std::string out = fmt::format("{} preset {}: {}\n", kind, preset.name, preset.doc);
  std::vector<Row> rows{{"parameter", "value", "source", "where"}};
  flatten(preset.values, "", rows);
  return out + aligned(rows, "  ");
}

bool is_preset_kind(std::string_view kind) {
  const auto& kinds = Presets::builtin().kinds();
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

/// The budgets that `csdsim eval` takes for the methods, or for one.
std::string methods_text(std::string_view name) {
  if (!name.empty()) host::attention_method(name);  // throws for an unknown method
  const auto budget = [](host::BudgetKind kind) -> std::string_view {
    switch (kind) {
      case host::BudgetKind::none:
        return "none";
      case host::BudgetKind::components_and_tokens:
        return "--r components, --k tokens (those of --local and the current one included), --local newest ones (k/4)";
      case host::BudgetKind::tokens:
        return "--k tokens, the current one included";
      case host::BudgetKind::heavy_and_recent:
        return "--heavy and --recent tokens that outlive a step; its own token comes on top";
      case host::BudgetKind::window_and_sinks:
        return "--window newest tokens, the current one included, --sinks first ones (0; streamingllm 4)";
    }
    return "";
  };
  std::string out;
  for (const host::MethodInfo& info : host::attention_methods()) {
    if (!name.empty() && info.name != name) continue;
    out +=
        fmt::format("{}: {}\n  budget: {}{}\n  runs: on the host{}\n", info.name, info.doc, budget(info.budget),
                    info.budget == host::BudgetKind::none ? "" : "; or --ratio", info.in_drive ? ", in the drive" : "");
  }
  return out;
}

[[noreturn]] void refuse_category(std::string_view category, const std::vector<CatalogCategory>& more) {
  auto names = catalog_categories();
  names.emplace_back("presets");
  for (const CatalogCategory& each : more) names.push_back(each.name);
  throw UserError(fmt::format("nothing to list under '{}'{}; exists: {}", printable(category),
                              did_you_mean(category, names), join(names)));
}

ParamTable table_of(const std::shared_ptr<const Registries>& registries) {
  return ParamTable::of(Scenario(registries));
}

ParamTable table_with_top(const std::shared_ptr<const Registries>& registries) {
  auto table = table_of(registries);
  table.sections.insert(table.sections.begin(), SectionRow{"", "The top of a scenario file.", {}, {}});
  return table;
}

}  // namespace

std::vector<std::string> catalog_categories() {
  std::vector<std::string> out;
  for (const Category& c : kCategories) out.emplace_back(c.name);
  return out;
}

std::vector<CatalogItem> catalog(std::string_view category, const std::shared_ptr<const Registries>& registries) {
  for (const Category& c : kCategories) {
    if (c.name != category) continue;
    std::vector<CatalogItem> items;
    if (c.name == kMethods) {
      for (const host::MethodInfo& info : host::attention_methods()) {
        items.push_back({std::string(info.name), std::string(info.doc)});
      }
    }
    for (const std::string& name : Presets::builtin().names(c.preset_kind)) {
      items.push_back({name, Presets::builtin().preset(c.preset_kind, name)->doc});
    }
    for (const SectionRow& section : table_of(registries).sections) {
      if (c.section.empty() || section.path != c.section) continue;
      for (std::size_t i = 0; i < section.kinds.size(); ++i) items.push_back({section.kinds[i], section.kind_docs[i]});
    }
    return items;
  }
  refuse_category(category, {});
}

std::vector<CatalogCategory> listed(std::string_view category, const std::shared_ptr<const Registries>& registries,
                                    const std::vector<CatalogCategory>& more) {
  std::vector<CatalogCategory> found;
  for (const Category& c : kCategories)
    if (category.empty() || category == c.name || (category == "presets" && !c.preset_kind.empty()))
      found.push_back({std::string(c.name), catalog(c.name, registries)});
  for (const CatalogCategory& each : more)
    if (category.empty() || category == each.name) found.push_back(each);
  if (found.empty()) refuse_category(category, more);
  return found;
}

std::string list_text(const std::vector<CatalogCategory>& categories) {
  std::string out;
  for (const CatalogCategory& each : categories) {
    std::vector<Row> rows;
    for (const CatalogItem& item : each.items) rows.push_back({item.name, item.doc});
    out += fmt::format("{}:\n{}", each.name, aligned(rows, "  "));
  }
  return out;
}

std::vector<std::string> describe_kinds(const std::shared_ptr<const Registries>& registries) {
  std::vector<std::string> kinds{"scenario", std::string(kMethods)};
  for (const SectionRow& section : table_of(registries).sections) {
    const std::string key(last_key(section.path));
    if (std::find(kinds.begin(), kinds.end(), key) == kinds.end()) kinds.push_back(key);
  }
  return kinds;
}

nlohmann::ordered_json describe_json(std::string_view kind, std::string_view name,
                                     const std::shared_ptr<const Registries>& registries) {
  const auto within = [kind](const std::string& section) {
    return kind.empty() || kind == "scenario" || ends_in(section, kind) ||
           section.starts_with(fmt::format("{}.", kind));
  };
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const ParamRow& row : table_with_top(registries).rows) {
    if (!within(row.section) && !ends_in(row.path, kind)) continue;
    if (!name.empty() && row.name != name && std::ranges::find(row.kinds, name) == row.kinds.end()) continue;
    rows.push_back({{"path", row.path},
                    {"kinds", row.kinds},
                    {"type", row.type},
                    {"range", row.range},
                    {"default", row.value},
                    {"source", to_string(row.cite.source)},
                    {"cited", row.cite.where},
                    {"meaning", row.doc}});
  }
  if (rows.empty())
    throw UserError(
        fmt::format("'{}' has no parameters{}", printable(name.empty() ? kind : name), path_hint(kind, registries)));
  return rows;
}

namespace {

/// Names the parameters whose description contains the word. Empty if there are none, or too many to name.
std::string mention_hint(std::string_view word, const ParamTable& table) {
  constexpr std::size_t kMost = 6;
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  const auto inside_a_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const auto mentions = [&](std::string_view text) {
    const auto found = std::ranges::search(text, word, {}, lower, lower);
    return !found.empty() && (found.begin() == text.begin() || !inside_a_word(found.begin()[-1])) &&
           (found.end() == text.end() || !inside_a_word(*found.end()));
  };
  std::vector<std::string> paths;
  for (const ParamRow& row : table.rows)
    if (mentions(row.doc)) paths.push_back(row.path);
  return word.empty() || paths.empty() || paths.size() > kMost
             ? ""
             : fmt::format(" (did you mean {}?)", join(paths, " or "));
}

}  // namespace

std::string describe_text(std::string_view kind, std::string_view name,
                          const std::shared_ptr<const Registries>& registries) {
  if (kind == kMethods || kind == "method") return methods_text(name);
  // The plurals of `list` are understood, too.
  const auto category = std::ranges::find(kCategories, kind, &Category::name);
  if (category != std::end(kCategories)) kind.remove_suffix(1);
  const ParamTable table = table_with_top(registries);
  if (!name.empty() && is_preset_kind(kind)) {
    if (const Preset* preset = Presets::builtin().preset(kind, name)) return preset_text(kind, *preset);
    const auto names = Presets::builtin().names(kind);
    throw UserError(fmt::format("unknown {} preset '{}'{}; exists: {}", kind, printable(name),
                                did_you_mean(name, names), join(names)));
  }
  std::string out;
  std::vector<std::string> kinds_of_section, matched;
  bool found = false;
  for (const SectionRow& section : table.sections) {
    const bool below = name.empty() && std::any_of(matched.begin(), matched.end(), [&](const std::string& path) {
                         return section.path.starts_with(fmt::format("{}.", path));
                       });
    const bool everything = kind == "scenario" && name.empty();
    if (!everything && !ends_in(section.path, kind) && !below) continue;
    if (section.path.empty() && !everything) continue;
    found = true;
    if (!everything) matched.push_back(section.path);
    if (!name.empty()) {
      if (std::find(section.kinds.begin(), section.kinds.end(), name) == section.kinds.end()) {
        kinds_of_section.insert(kinds_of_section.end(), section.kinds.begin(), section.kinds.end());
        continue;
      }
    }
    if (!out.empty()) out += "\n";
    out += section_text(table, section, name);
  }
  if (!out.empty()) return out;
  if (category != std::end(kCategories) && !found) return list_text(listed(category->name, registries));
  out = name.empty() ? parameter_text(table, "", kind) : parameter_text(table, kind, name);
  if (!out.empty()) return out;
  if (found) {
    for (const ParamRow& row : table.rows)
      if (ends_in(row.section, kind)) kinds_of_section.push_back(row.name);
    throw UserError(fmt::format("{} has no kind or parameter '{}'{}; exists: {}", kind, printable(name),
                                did_you_mean(name, kinds_of_section),
                                kinds_of_section.empty() ? "none" : join(kinds_of_section)));
  }
  // A kind, a preset or a method by its name alone.
  for (const Category& c : kCategories)
    if (const auto items = catalog(c.name, registries);
        name.empty() && std::ranges::find(items, kind, &CatalogItem::name) != items.end())
      return describe_text(c.name, kind, registries);
  auto kinds = describe_kinds(registries);
  kinds.emplace_back("metrics");
  std::string hint = kind.find('.') == kind.npos ? did_you_mean(kind, kinds) : "";
  if (hint.empty()) hint = path_hint(kind, registries);
  if (hint.empty()) hint = mention_hint(kind, table);
  if (hint.empty()) hint = "; exists: " + join(kinds);
  throw UserError(fmt::format("nothing to describe under '{}'{}", printable(kind), hint));
}

std::vector<std::string> parameter_paths(const std::shared_ptr<const Registries>& registries) {
  const ParamTable table = table_of(registries);
  std::vector<std::string> paths;
  for (const SectionRow& section : table.sections) paths.push_back(section.path);
  for (const ParamRow& row : table.rows) paths.push_back(row.path);
  std::ranges::sort(paths);
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::string path_hint(std::string_view path, const std::shared_ptr<const Registries>& registries) {
  constexpr std::size_t kMost = 4;
  const std::vector<std::string> paths = parameter_paths(registries);
  std::vector<std::string> ends;
  for (const std::string& known : paths)
    if (const std::string_view end = last_keys(known, path); !end.empty()) ends.emplace_back(end);
  std::string end(path);
  if (std::ranges::find(ends, end) == ends.end()) end = nearest_name(path, ends);
  if (!end.empty()) {
    std::vector<std::string> meant;
    std::ranges::copy_if(paths, std::back_inserter(meant),
                         [&](const std::string& known) { return ends_in(known, end); });
    return meant.size() <= kMost
               ? fmt::format(" (did you mean {}?)", join(meant, " or "))
               : fmt::format(" (csdsim describe {} shows {} parameters of this name)", end, meant.size());
  }
  std::vector<std::string> takers;
  const ParamTable table = table_of(registries);
  for (const ParamRow& row : table.rows)
    if (row.type.starts_with("one of ") &&
        fmt::format("{},", row.type.substr(6)).find(fmt::format(" {},", path)) != std::string::npos)
      takers.push_back(row.path);
  return takers.empty() || takers.size() > kMost
             ? ""
             : fmt::format(" ('{}' is a value of {})", printable(path), join(takers, " and "));
}

std::string describe_markdown(const std::shared_ptr<const Registries>& registries) {
  const ParamTable table = table_with_top(registries);
  const auto cell = [](std::string_view text) {
    std::string escaped;
    for (const char c : text) {
      if (c == '|') escaped += '\\';
      escaped += c;
    }
    return escaped;
  };
  std::string out = "# Parameters of a scenario\n";
  for (const SectionRow& section : table.sections) {
    out += fmt::format("\n## {}\n\n{}\n", section.path.empty() ? "top" : section.path, section.doc);
    for (std::size_t i = 0; i < section.kinds.size(); ++i) {
      out += fmt::format("\n- `{}`: {}", section.kinds[i], section.kind_docs[i]);
    }
    out += section.kinds.empty() ? "" : "\n";
    std::string rows;
    for (const ParamRow& row : table.rows) {
      if (row.section != section.path) continue;
      const std::string kind = kinds_text(section, row);
      rows += fmt::format("| `{}`{} | {} | {} | {} | {} | {} |\n", row.name, kind, cell(row.value), cell(row.type),
                          cell(range_text(row)), source_text(row), cell(meaning(row)));
    }
    if (rows.empty()) continue;
    out += "\n| parameter | default | type | range | source | meaning |\n|---|---|---|---|---|---|\n";
    out += rows;
  }
  return out;
}

}  // namespace csdsim::scenario
