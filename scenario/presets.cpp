#include "scenario/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/config/yaml.h"
#include "base/quantity.h"
#include "base/text.h"
#include "nfc/core/onfi.h"

namespace csdsim::scenario {

/// Generated from scenario/presets: file name and text.
std::span<const std::pair<std::string_view, std::string_view>> preset_files();

namespace {

using config::Diagnostics;
using config::Entry;
using config::Layer;
using config::Node;
using config::Origin;

/// {v, src, cite} to the value it stands for.
Node leaf(const Node& map, const std::string& name, Diagnostics& diagnostics) {
  const Entry* source = map.find("src");
  const Entry* cite = map.find("cite");
  Node value = map.find("v")->value;
  if (map.entries.size() != 3 || !source || !cite || !source_from(source->value.scalar) || cite->value.scalar.empty()) {
    diagnostics.error(map.origin, "a value of a preset is {v, src, cite} with a known src and a cite that says where");
    return value;
  }
  const Origin origin{Layer::preset, "preset " + name, 0, 0, source->value.scalar + ": " + cite->value.scalar};
  value.origin = origin;
  for (Node& item : value.items) item.origin = origin;
  return value;
}

Node values_of(const Node& map, const std::string& name, Diagnostics& diagnostics) {
  Node out;
  out.kind = Node::Kind::map;
  out.origin = Origin{Layer::preset, "preset " + name, 0, 0, ""};
  for (const Entry& entry : map.entries) {
    if (!entry.value.is_map()) {
      diagnostics.error(entry.origin, fmt::format("{}: expected a map or {{v, src, cite}}", entry.key));
      continue;
    }
    Node value =
        entry.value.find("v") ? leaf(entry.value, name, diagnostics) : values_of(entry.value, name, diagnostics);
    out.entries.push_back({entry.key, out.origin, std::move(value)});
  }
  return out;
}

}  // namespace

const Presets& Presets::builtin() {
  static const Presets presets = [] {
    Presets made;
    try {
      for (const auto& [file, text] : preset_files()) made.add(file, text);
      made.add_interfaces();
    } catch (const UserError& e) {
      throw InternalError(e.what());
    }
    return made;
  }();
  return presets;
}

void Presets::add(std::string_view file_name, std::string_view text) {
  Diagnostics diagnostics;
  const Node root = config::parse_document(text, Origin{Layer::file, std::string(file_name), 0, 0, ""}, diagnostics);
  const Entry* kind = root.find("kind");
  const Entry* presets = root.find("presets");
  if (!kind || kind->value.scalar.empty() || !presets || !presets->value.is_map()) {
    diagnostics.error(root.origin, "a preset file has `kind` and `presets`");
    diagnostics.throw_if_any();
    return;
  }
  if (!by_kind_.contains(kind->value.scalar)) kinds_.push_back(kind->value.scalar);
  auto& list = by_kind_[kind->value.scalar];
  for (const Entry& entry : presets->value.entries) {
    const Entry* doc = entry.value.find("doc");
    const Entry* values = entry.value.find("values");
    if (!doc || doc->value.scalar.empty() || !values || !values->value.is_map()) {
      diagnostics.error(entry.origin, fmt::format("preset {} needs `doc` and `values`", entry.key));
      continue;
    }
    if (preset(kind->value.scalar, entry.key)) {
      diagnostics.error(entry.origin, fmt::format("{} preset {} exists already", kind->value.scalar, entry.key));
      continue;
    }
    list.push_back({entry.key, doc->value.scalar, values_of(values->value, entry.key, diagnostics)});
  }
  diagnostics.throw_if_any();
}

void Presets::add_interfaces() {
  kinds_.emplace_back("interface");
  for (const nfc::InterfaceMode& mode : nfc::interface_modes()) {
    Preset preset{std::string(mode.name), fmt::format("{}.", mode.source), {}};
    const Origin origin{Layer::preset, "preset " + preset.name, 0, 0, fmt::format("datasheet: {}", mode.source)};
    preset.values.kind = Node::Kind::map;
    preset.values.origin = origin;
    const auto set = [&](const char* key, const auto& quantity) {
      Node value;
      value.kind = Node::Kind::scalar;
      value.origin = origin;
      value.scalar = format_quantity(quantity);
      preset.values.entries.push_back({key, origin, std::move(value)});
    };
    set("channel_bandwidth", mode.channel_bandwidth());
    set("command_time", mode.command_time());
    set("data_out_setup", mode.data_out_setup);
    by_kind_["interface"].push_back(std::move(preset));
  }
}

const Preset* Presets::preset(std::string_view kind, std::string_view name) const {
  const auto it = by_kind_.find(kind);
  if (it == by_kind_.end()) return nullptr;
  const auto found =
      std::find_if(it->second.begin(), it->second.end(), [&](const Preset& p) { return p.name == name; });
  return found == it->second.end() ? nullptr : &*found;
}

const Node* Presets::find(std::string_view kind, std::string_view name) const {
  const Preset* found = preset(kind, name);
  return found ? &found->values : nullptr;
}

std::vector<std::string> Presets::names(std::string_view kind) const {
  std::vector<std::string> out;
  const auto it = by_kind_.find(kind);
  if (it == by_kind_.end()) return out;
  for (const Preset& p : it->second) out.push_back(p.name);
  return out;
}

}  // namespace csdsim::scenario
