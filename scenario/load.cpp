#include "scenario/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/config/dump.h"
#include "base/config/yaml.h"
#include "base/text.h"
#include "scenario/check.h"
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

/// `csdsim: 1` on top.
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

/// `presets: [FILE...]`: presets beside the built-in ones. Leaves the tree without them.
Presets take_presets(Node& root, const std::filesystem::path& directory, std::vector<std::string>& files,
                     Diagnostics& diagnostics) {
  Presets presets = Presets::builtin();
  const Entry* entry = root.find("presets");
  if (!entry) return presets;
  const Node& list = entry->value;
  const std::vector<Node> items = list.kind == Node::Kind::scalar ? std::vector<Node>{list} : list.items;
  if (items.empty()) diagnostics.error(list.origin, "presets: expected a file or a list of files");
  for (const Node& item : items) {
    std::filesystem::path path = directory / item.scalar;
    if (std::error_code none; !std::filesystem::exists(path, none)) path = item.scalar;
    try {
      presets.add(path.string(), config::read_file(path));
      files.push_back(std::filesystem::absolute(path).string());
    } catch (const UserError& error) {
      diagnostics.error(item.origin, fmt::format("presets: {}", error.what()));
    }
  }
  root.erase("presets");
  return presets;
}

Resolved resolve(const Node& tree, const Presets& presets, const std::string& name,
                 const std::filesystem::path& directory, Diagnostics& diagnostics) {
  Resolved resolved;
  resolved.scenario.name = name;
  config::Reader reader(tree, presets, diagnostics);
  reader.read(resolved.scenario);
  Checker checker(resolved.scenario, reader, directory, diagnostics);
  checker.require(is_name(resolved.scenario.name), {"name"},
                  fmt::format("name: '{}' has to be letters, digits, '.', '_' or '-', and not start with '.'",
                              printable(resolved.scenario.name)));
  checker.require(config::find_path(reader.root(), "workload") != nullptr, {"workload"},
                  "workload: say what to run: {kind: generation, ...}, {kind: block_io, ...}, {kind: trace, ...} or "
                  "{kind: ftl_policies, ...}");
  check_scenario(checker);
  resolved.origins = reader.origins();
  resolved.notes = diagnostics.notes();
  return resolved;
}

}  // namespace

Loaded load_scenario_text(std::string_view text, const std::string& name, const std::filesystem::path& directory,
                          const std::vector<std::string>& sets) {
  Diagnostics diagnostics;
  Node tree = config::parse_document(text, {config::Layer::file, name, 0, 0, ""}, diagnostics);
  // Without a readable file, what follows would only complain about what is missing.
  if (!diagnostics.ok() && tree.entries.empty()) diagnostics.throw_if_any();
  for (const std::string& set : sets) config::apply_set(tree, set, diagnostics);
  take_version(tree, diagnostics);
  std::vector<std::string> preset_files;
  const Presets presets = take_presets(tree, directory, preset_files, diagnostics);

  std::vector<Axis> axes;
  if (const Entry* sweep = tree.find("sweep")) {
    axes = read_axes(sweep->value, diagnostics);
    tree.erase("sweep");
  }

  const std::string run_name = default_name(name);
  Loaded loaded;
  loaded.base = resolve(tree, presets, run_name, directory, diagnostics);
  loaded.base.scenario.preset_files = preset_files;
  for (const AxisPoint& point : axis_points(axes)) {
    // A mistake of the base shows in every point: a few of them are enough to find those of the axes.
    if (!diagnostics.ok() && loaded.points.size() >= 100) break;
    Diagnostics own;
    Node at_point = tree;
    SweepPoint made;
    made.name = point.name;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const Node& value = axes[a].values[point.indices[a]];
      if (const Node* set = config::find_path(tree, axes[a].path);
          set && set->origin.layer == config::Layer::override) {
        own.note(set->origin, fmt::format("{} is swept: the axis counts", axes[a].path));
      }
      config::set_path(at_point, axes[a].path, value);
      made.axes.emplace_back(axes[a].path, axis_value_text(value));
    }
    made.resolved = resolve(at_point, presets, run_name, directory, own);
    made.resolved.scenario.preset_files = preset_files;
    diagnostics.add(own);
    loaded.points.push_back(std::move(made));
  }
  diagnostics.throw_if_any();
  return loaded;
}

Loaded load_scenario(const std::filesystem::path& file, const std::vector<std::string>& sets) {
  const std::string text = config::read_file(file);
  std::filesystem::path directory = file.parent_path();
  if (directory.empty()) directory = ".";
  return load_scenario_text(text, file.string(), directory, sets);
}

nlohmann::ordered_json effective_config(const Scenario& scenario) {
  nlohmann::ordered_json json;
  json["csdsim"] = 1;
  if (!scenario.preset_files.empty()) json["presets"] = scenario.preset_files;
  json.update(config::JsonDump::of(scenario));
  if (const auto* work = std::get_if<GenerationWorkload>(&scenario.workload)) {
    if (work->prompts) {
      json["workload"].erase("batch");
      json["workload"].erase("input_tokens");
    }
    if (scenario.simulation.data == DataMode::carried) json["simulation"].erase("selection");
  } else if (std::holds_alternative<PolicyWorkload>(scenario.workload)) {
    for (const char* const unused : {"model", "system"}) json.erase(unused);
    for (const char* const unused : {"gpu", "host"}) json["platform"].erase(unused);
    nlohmann::ordered_json& device = json["platform"]["device"];
    for (const char* const unused : {"count", "fidelity", "engine", "nvme", "link", "write_buffer", "energy"})
      device.erase(unused);
    for (const char* const unused : {"reliability", "filter_location"}) device["flash"].erase(unused);
    for (const char* const unused : {"lookup_time", "over_provisioning"}) device["ftl"].erase(unused);
    json["simulation"].erase("sampling");
    return json;
  } else {
    const auto* block = std::get_if<BlockIoWorkload>(&scenario.workload);
    if (block && block->open()) json["workload"].erase("queue_depth");
    if (block && block->duration) json["workload"].erase("requests");
    if (block && !block->request_sizes.empty()) json["workload"].erase("request_size");
    json.erase("model");
    json.erase("system");
    json["simulation"].erase("selection");
    json["simulation"].erase("sampling");
    json["platform"]["device"]["energy"].erase("mac");
  }
  if (const ftl::KvMapping* mapping = ftl::kv_mapping(scenario.platform.device.ftl.mapping);
      mapping && mapping->tail != ftl::TailPolicy::partial_program) {
    json["platform"]["device"]["ftl"]["mapping"].erase("tail_rewrites");
  }
  if (!scenario.platform.device.has_engine()) json["platform"]["device"]["energy"].erase("engine_idle");
  if (!scenario.platform.gpu.times) json["platform"]["gpu"].erase("times");
  if (scenario.platform.gpu.timing == host::GpuTiming::measured) {
    for (const char* const of_model : {"fp16_rate", "memory_bandwidth", "kernel_launch", "efficiency"})
      json["platform"]["gpu"].erase(of_model);
  }
  if (auto* sparf = std::get_if<InstinferSparf>(&scenario.system);
      sparf && sparf->r && sparf->k && json.contains("system")) {
    json["system"].erase("ratio");
    json["system"].erase("ratio_mode");
  }
  for (const char* const end : {"device", "gpu"}) {
    nlohmann::ordered_json& link = json["platform"][end]["link"];
    if (link["bandwidth"] == "auto") continue;
    for (const char* const of_packets :
         {"max_payload", "max_read_request", "outstanding_reads", "tlp_overhead", "dllp_overhead"})
      link.erase(of_packets);
  }
  return json;
}

}  // namespace csdsim::scenario
