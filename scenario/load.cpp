#include "scenario/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <variant>

#include "base/config/dump.h"
#include "base/config/yaml.h"
#include "base/json_object.h"
#include "base/text.h"
#include "scenario/catalog.h"
#include "scenario/check.h"
#include "scenario/load_point.h"
#include "scenario/plugin.h"
#include "scenario/presets.h"
#include "scenario/sweep.h"

namespace csdsim::scenario {
namespace {

using config::Diagnostics;
using config::Entry;
using config::Node;

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 100 && text.front() != '.' && std::all_of(text.begin(), text.end(), allowed);
}

std::string default_name(const std::filesystem::path& file) {
  std::string name = file.stem().string();
  for (char& c : name) {
    if (!is_name(std::string("x") + c)) c = '-';
  }
  return is_name(name) ? name : "scenario";
}

/// Checks and removes the key `csdsim`, the format version.
void take_version(Node& root, Diagnostics& diagnostics) {
  const Entry* version = root.find("csdsim");
  if (!version) {
    diagnostics.error(root.origin, "csdsim: the format version is missing: write `csdsim: 1` on top");
  } else if (version->value.scalar != "1") {
    diagnostics.error(version->value.origin, fmt::format("csdsim: this build reads format version 1, found {}",
                                                         version->value.kind == Node::Kind::scalar
                                                             ? fmt::format("'{}'", printable(version->value.scalar))
                                                             : std::string(version->value.kind_name())));
  }
  root.erase("csdsim");
}

/// Checks and removes the key `$schema`, which is for editors.
void take_schema(Node& root, Diagnostics& diagnostics) {
  const Entry* schema = root.find("$schema");
  if (schema == nullptr) return;
  if (schema->value.kind != Node::Kind::scalar)
    diagnostics.error(schema->value.origin, "$schema: expected a path or an address");
  root.erase("$schema");
}

/// The path of a file that a scenario names, relative to `directory`, or to the current directory if it is not there.
std::filesystem::path named_file(const std::string& given, const std::filesystem::path& directory) {
  std::filesystem::path beside = directory / given;
  std::error_code none;
  return std::filesystem::exists(beside, none) ? beside : std::filesystem::path(given);
}

/// Calls `use` with each file of the top-level list `key` and removes the key. Returns the files as absolute paths.
std::vector<std::string> take_files(Node& root, std::string_view key, const std::filesystem::path& directory,
                                    Diagnostics& diagnostics,
                                    const std::function<void(const std::filesystem::path&)>& use) {
  std::vector<std::string> files;
  const Entry* entry = root.find(key);
  if (!entry) return files;
  const Node& list = entry->value;
  const std::vector<Node> items = list.kind == Node::Kind::scalar ? std::vector<Node>{list} : list.items;
  if (items.empty()) diagnostics.error(list.origin, fmt::format("{}: expected a file or a list of files", key));
  for (const Node& item : items) {
    const std::filesystem::path path = named_file(item.scalar, directory);
    try {
      use(path);
      files.push_back(std::filesystem::absolute(path).string());
    } catch (const UserError& error) {
      diagnostics.error(item.origin, fmt::format("{}: {}", key, error.what()));
    }
  }
  root.erase(key);
  return files;
}

/// The comment at the top of a file as one line, without the line that names the schema.
std::string head_comment(std::string_view text) {
  std::string comment;
  while (text.starts_with('#')) {
    std::string_view line = text.substr(1, text.find('\n') - 1);
    text.remove_prefix(std::min(text.size(), line.size() + 2));
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.front()))) line.remove_prefix(1);
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.remove_suffix(1);
    if (line.starts_with("yaml-language-server:") || line.empty()) continue;
    comment += comment.empty() ? "" : " ";
    comment += line;
  }
  return comment;
}

/// Adds the files that another scenario lists under the top-level key `key` to those of `root`. Files that both list
/// are not added.
void add_files(Node& root, const Node& other, std::string_view key, const std::filesystem::path& directory,
               const std::filesystem::path& other_directory) {
  const Entry* entry = other.find(key);
  if (entry == nullptr) return;
  Entry* own = root.find(key);
  if (own == nullptr) {
    root.entries.push_back({std::string(key), entry->origin, Node{Node::Kind::list, entry->origin, {}, {}, {}}});
    own = &root.entries.back();
  } else if (own->value.kind == Node::Kind::scalar) {
    own->value = Node{Node::Kind::list, own->value.origin, {}, {own->value}, {}};
  }
  const Node& list = entry->value;
  for (Node item : list.kind == Node::Kind::scalar ? std::vector<Node>{list} : list.items) {
    item.scalar = std::filesystem::absolute(named_file(item.scalar, other_directory)).string();
    const bool known = std::ranges::any_of(own->value.items, [&](const Node& named) {
      std::error_code none;
      return std::filesystem::equivalent(named_file(named.scalar, directory), item.scalar, none);
    });
    if (!known) own->value.items.push_back(std::move(item));
  }
}

/// If `platform` names another scenario file, replaces the name by the platform of that file, and adds its presets and
/// plugins. Returns the file that was read.
std::optional<std::filesystem::path> take_platform(Node& root, const std::filesystem::path& directory,
                                                   Diagnostics& diagnostics) {
  Entry* entry = root.find("platform");
  if (entry == nullptr || entry->value.kind != Node::Kind::scalar) return std::nullopt;
  const std::filesystem::path file = named_file(entry->value.scalar, directory);
  const config::Origin place = entry->value.origin;
  const auto refuse = [&](const std::string& why) {
    diagnostics.error(place, fmt::format("platform: {}", why));
    root.erase("platform");
  };
  if (std::error_code none; !std::filesystem::is_regular_file(file, none)) {
    refuse(
        fmt::format("there is no file '{}' whose platform could be taken; a drive's name goes into "
                    "platform.device.preset",
                    printable(file.string())));
    return std::nullopt;
  }
  const std::string text = config::read_file(file);
  Diagnostics of_file;
  Node other = config::parse_document(text, {config::Layer::file, file.string(), 0, 0, ""}, of_file);
  if (of_file.ok()) take_version(other, of_file);
  diagnostics.add(of_file);
  const Entry* platform = other.find("platform");
  if (!of_file.ok()) {
    root.erase("platform");
  } else if (platform == nullptr || !platform->value.is_map()) {
    refuse(fmt::format("{} has no map `platform`", file.string()));
  } else {
    entry->value = platform->value;
    for (const char* const key : {"presets", "plugins"}) add_files(root, other, key, directory, file.parent_path());
  }
  return file;
}

/// The context of a scenario file: its presets, its plugins and its directory.
struct Surroundings {
  Presets presets = Presets::builtin();
  std::shared_ptr<const Registries> registries;
  std::vector<std::string> preset_files;
  std::vector<std::string> plugin_files;
  std::vector<std::filesystem::path> platform_files;  ///< scenario files that `platform` has named
  std::string run_name;
  std::string question;
  std::filesystem::path directory;
  bool attention_on_host = false;
};

Surroundings take_surroundings(Node& root, const std::filesystem::path& directory,
                               const std::shared_ptr<const Registries>& registries, Diagnostics& diagnostics) {
  Surroundings around;
  around.directory = directory;
  around.preset_files = take_files(root, "presets", directory, diagnostics, [&](const std::filesystem::path& path) {
    around.presets.add(path.string(), config::read_file(path));
  });
  const auto extended = std::make_shared<Registries>(*registries);
  around.plugin_files = take_files(root, "plugins", directory, diagnostics,
                                   [&](const std::filesystem::path& path) { load_plugin(path, *extended); });
  around.registries = around.plugin_files.empty() ? registries : extended;
  return around;
}

std::string known_workloads(const Registries& registries) {
  std::vector<std::string> maps;
  for (const std::string& kind : registries.experiments.names()) maps.push_back(fmt::format("{{kind: {}, ...}}", kind));
  return join(maps);
}

/// A scenario that was read, and what its checks across parameters found.
struct Checked {
  Resolved resolved;
  Diagnostics checks;
};

/// Records in `diagnostics` what cannot be read.
Checked resolve(Node tree, const Surroundings& around, Diagnostics& diagnostics) {
  Checked checked{.resolved = {.scenario = Scenario(around.registries),
                               .origins = {},
                               .notes = {},
                               .found = {},
                               .question = around.question},
                  .checks = {}};
  Resolved& resolved = checked.resolved;
  resolved.scenario.name = around.run_name;
  resolved.scenario.attention_on_host = around.attention_on_host;
  resolved.scenario.preset_files = around.preset_files;
  resolved.scenario.plugin_files = around.plugin_files;
  for (const auto* files : {&around.preset_files, &around.plugin_files})
    resolved.scenario.inputs.insert(resolved.scenario.inputs.end(), files->begin(), files->end());
  resolved.scenario.inputs.insert(resolved.scenario.inputs.end(), around.platform_files.begin(),
                                  around.platform_files.end());
  config::Reader reader(std::move(tree), around.presets, diagnostics,
                        [&](std::string_view path) { return path_hint(path, around.registries); });
  reader.read(resolved.scenario);
  Checker checker(resolved.scenario, reader, around.directory, checked.checks);
  checker.require(is_name(resolved.scenario.name), {"name"},
                  fmt::format("name: '{}' has to be letters, digits, '.', '_' or '-', and not start with '.'",
                              printable(resolved.scenario.name)));
  checker.require(config::find_path(reader.root(), "workload") != nullptr, {"workload"},
                  fmt::format("workload: say what to run, one of {}", known_workloads(*around.registries)));
  try {
    check_scenario(checker);
  } catch (const std::exception&) {
    // What a check stumbles over behind a mistake has no place in the file; the mistake has one, and is told.
    if (diagnostics.ok() && checked.checks.ok()) throw;
  }
  resolved.origins = reader.take_origins();
  return checked;
}

/// The scenario with the notes about it; what its checks found is added to `diagnostics`.
Resolved with_notes(Checked checked, Diagnostics& diagnostics) {
  diagnostics.add(checked.checks);
  checked.resolved.notes = diagnostics.notes();
  checked.resolved.found = checked.checks.notes();
  return std::move(checked.resolved);
}

/// A scenario file before any of its points is resolved.
struct Document {
  Node tree;  ///< without the section `sweep`
  Surroundings around;
  Sweep sweep;
  std::vector<AxisPoint> points;

  Document(std::string_view text, const std::string& name, const std::filesystem::path& directory,
           const std::vector<std::string>& sets, const std::shared_ptr<const Registries>& registries,
           Diagnostics& diagnostics)
      : tree(config::parse_document(text, {config::Layer::file, name, 0, 0, ""}, diagnostics)) {
    // If the file cannot be read, every further error would only be about a missing key.
    if (!diagnostics.ok() && tree.entries.empty()) diagnostics.throw_if_any();
    std::vector<std::filesystem::path> platform_files;
    const auto take_named_platform = [&] {
      if (const auto file = take_platform(tree, directory, diagnostics)) platform_files.push_back(*file);
    };
    take_named_platform();
    for (const std::string& set : sets) {
      config::apply_set(tree, set, diagnostics);
      take_named_platform();  // before the next --set, which may change a part of it
    }
    take_version(tree, diagnostics);
    take_schema(tree, diagnostics);
    around = take_surroundings(tree, directory, registries, diagnostics);
    around.platform_files = std::move(platform_files);
    around.run_name = default_name(name);
    around.question = head_comment(text);
    const Entry* section = tree.find("sweep");
    if (section == nullptr) return;
    sweep = read_sweep(section->value, around.registries, diagnostics);
    try {
      points = sweep_points(sweep, diagnostics);
    } catch (const UserError& error) {
      diagnostics.error(section->origin, error.what());
    }
    tree.erase("sweep");
  }

  /// Path and value of each axis.
  std::vector<std::pair<std::string, std::string>> axes_of(const AxisPoint& point) const {
    std::vector<std::pair<std::string, std::string>> values;
    for (std::size_t a = 0; a < sweep.axes.size(); ++a)
      values.emplace_back(sweep.axes[a].path, axis_value_text(sweep.axes[a].values[point.indices[a]]));
    return values;
  }

  Checked resolve_point(const AxisPoint& point, Diagnostics& diagnostics) const {
    const std::vector<Axis>& axes = sweep.axes;
    Diagnostics of_axes;
    Node at_point = tree;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const Node& value = axes[a].values[point.indices[a]];
      if (const Node* set = config::find_path(tree, axes[a].path);
          set && set->origin.layer == config::Layer::override) {
        of_axes.note(set->origin, fmt::format("{} is swept: the axis counts", axes[a].path));
      }
      config::set_path(at_point, axes[a].path, value);
    }
    Checked checked = resolve(std::move(at_point), around, diagnostics);
    checked.checks.add(of_axes);
    return checked;
  }
};

std::filesystem::path directory_of(const std::filesystem::path& file) {
  const std::filesystem::path directory = file.parent_path();
  return directory.empty() ? "." : directory;
}

}  // namespace

Loaded load_scenario_text(std::string_view text, const std::string& name, const std::filesystem::path& directory,
                          const std::vector<std::string>& sets, const std::shared_ptr<const Registries>& registries,
                          bool attention_on_host) {
  Diagnostics diagnostics;
  Document document(text, name, directory, sets, registries, diagnostics);
  document.around.attention_on_host = attention_on_host;
  Loaded loaded{with_notes(resolve(document.tree, document.around, diagnostics), diagnostics),
                {},
                std::move(document.sweep.search)};
  check_metrics(document.sweep, std::string(loaded.base.scenario.workload.kind()), *registries, diagnostics);
  // A mistake in the base repeats in every point; 100 points are enough to find the mistakes in the axes.
  constexpr std::size_t kEnough = 100;
  Diagnostics refused;
  for (const AxisPoint& point : document.points) {
    if (!diagnostics.ok() && loaded.points.size() >= kEnough) break;
    Diagnostics own;
    Checked checked = document.resolve_point(point, own);
    diagnostics.add(own);
    if (loaded.points.size() < kEnough) refused.add(checked.checks);
    loaded.points.push_back({.name = point.name,
                             .axes = document.axes_of(point),
                             .indices = point.indices,
                             .scenario = std::move(checked.resolved.scenario),
                             .notes = checked.checks.notes(),
                             .refusal = join(checked.checks.errors(), "\n")});
  }
  if (!diagnostics.ok() || (!loaded.points.empty() && loaded.refused() == loaded.points.size()))
    diagnostics.add(refused);
  diagnostics.throw_if_any();
  return loaded;
}

std::size_t Loaded::refused() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(points, [](const SweepPoint& p) { return !p.refusal.empty(); }));
}

std::vector<std::string> all_notes(const Loaded& loaded) {
  // Where it stands does not tell a note from another.
  const auto message = [](const std::string& note) {
    return note.substr(std::min(note.find(": note: "), note.size()));
  };
  // The base is not simulated: its notes stand only if a point has them.
  std::set<std::string> of_points;
  for (const SweepPoint& point : loaded.points)
    if (point.refusal.empty())
      for (const std::string& note : point.notes) of_points.insert(message(note));
  const auto of_no_point = [&](const std::string& note) {
    return !loaded.points.empty() && !of_points.contains(message(note)) &&
           std::ranges::find(loaded.base.found, note) != loaded.base.found.end();
  };
  std::vector<std::string> notes;
  std::ranges::remove_copy_if(loaded.base.notes, std::back_inserter(notes), of_no_point);
  std::set<std::string> known;
  for (const std::string& note : notes) known.insert(message(note));
  const std::size_t most = notes.size() + kMaxPointNotes;
  std::size_t more = 0;
  for (const SweepPoint& point : loaded.points) {
    if (!point.refusal.empty()) continue;
    for (const std::string& note : point.notes) {
      if (!known.insert(message(note)).second) continue;
      if (notes.size() < most)
        notes.push_back(fmt::format("{} (at {})", note, point.name));
      else
        ++more;
    }
  }
  if (more > 0) notes.push_back(fmt::format("{} more notes of points of the sweep", more));
  return notes;
}

LoadedPoint load_point(const std::filesystem::path& file, const std::vector<std::string>& sets,
                       const std::shared_ptr<const Registries>& registries, std::optional<std::size_t> point) {
  Diagnostics diagnostics;
  const Document document(config::read_file(file), file.string(), directory_of(file), sets, registries, diagnostics);
  const std::size_t points = document.points.size();
  if (point) diagnostics.throw_if_any();
  if (point && *point >= points)
    throw UserError(fmt::format("--point {}: the sweep of {} has {} points", *point, file.string(), points));
  LoadedPoint loaded{with_notes(point ? document.resolve_point(document.points[*point], diagnostics)
                                      : resolve(document.tree, document.around, diagnostics),
                                diagnostics),
                     points};
  diagnostics.throw_if_any();
  return loaded;
}

Loaded load_scenario(const std::filesystem::path& file, const std::vector<std::string>& sets,
                     const std::shared_ptr<const Registries>& registries, bool attention_on_host) {
  return load_scenario_text(config::read_file(file), file.string(), directory_of(file), sets, registries,
                            attention_on_host);
}

nlohmann::ordered_json effective_config(const Scenario& scenario) {
  nlohmann::ordered_json described = config::JsonDump::of(scenario);
  nlohmann::ordered_json json = object_for(described.size() + 3);
  json["csdsim"] = 1;
  if (!scenario.preset_files.empty()) json["presets"] = scenario.preset_files;
  if (!scenario.plugin_files.empty()) json["plugins"] = scenario.plugin_files;
  for (auto& [key, value] : described.items()) json[key] = std::move(value);
  const csd_model::DeviceConfig& device = scenario.platform.device;
  if (const ftl::KvMapping* mapping = ftl::kv_mapping(device.ftl.mapping);
      mapping && mapping->tail != ftl::TailPolicy::partial_program)
    erase_path(json, "platform.device.ftl.mapping.tail_rewrites");
  if (!device.has_engine()) erase_path(json, "platform.device.energy.engine_idle");
  if (device.engine.fpga == engine::FpgaPart::automatic || !device.has_engine() || !scenario.workload->attends())
    erase_path(json, "platform.device.engine.fpga_check");
  const std::optional<host::FilePath> files = scenario.workload->file_path(scenario);
  if (files != host::FilePath::file_system) erase_path(json, "platform.host.file");
  if (files != host::FilePath::swap) erase_path(json, "platform.host.swap");
  if (!scenario.platform.gpu.times) erase_path(json, "platform.gpu.times");
  if (scenario.platform.gpu.timing == host::GpuTiming::measured) {
    for (const char* const of_model : {"fp16_rate", "memory_bandwidth", "kernel_launch", "efficiency", "gemm_by_rows"})
      erase_path(json, fmt::format("platform.gpu.{}", of_model));
  }
  if (scenario.platform.gpu.gemm_by_rows.given()) erase_path(json, "platform.gpu.efficiency.gemm");
  for (const std::string& unused : scenario.system->unused_parameters())
    erase_path(json, fmt::format("system.{}", unused));
  for (const char* const end : {"device", "gpu"}) {
    if (json["platform"][end]["link"]["bandwidth"] == "auto") continue;
    for (const char* const of_packets :
         {"max_payload", "max_read_request", "outstanding_reads", "tlp_overhead", "dllp_overhead"})
      erase_path(json, fmt::format("platform.{}.link.{}", end, of_packets));
  }
  if (const auto* const clustered = std::get_if<ClusteredSelectionConfig>(&scenario.simulation.selection))
    erase_path(json, clustered->selected_per_page ? "simulation.selection.token_page_fraction"
                                                  : "simulation.selection.selected_per_page");
  scenario.workload->prune(json, scenario);
  if (scenario.attention_on_host) json.erase("platform");
  return json;
}

void erase_path(nlohmann::ordered_json& config, std::string_view path) {
  nlohmann::ordered_json* map = &config;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    const std::string key(path.substr(0, dot));
    if (!map->contains(key)) return;
    map = &(*map)[key];
    path.remove_prefix(dot + 1);
  }
  if (map->is_object()) map->erase(std::string(path));
}

}  // namespace csdsim::scenario
