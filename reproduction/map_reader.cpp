#include "reproduction/map_reader.h"

#include <fmt/format.h>

#include "base/text.h"

namespace csdsim::reproduction {

using config::Entry;
using config::Node;

namespace {

class NoPresets final : public config::PresetSource {
 public:
  const Node* find(std::string_view, std::string_view) const override { return nullptr; }
  std::vector<std::string> names(std::string_view) const override { return {}; }
};

}  // namespace

const config::PresetSource& MapReader::no_presets() {
  static const NoPresets none;
  return none;
}

MapReader::MapReader(const Node& map, std::string what, config::Diagnostics& diagnostics)
    : whole_(map), map_(map), what_(std::move(what)), diagnostics_(diagnostics) {
  if (map.is_map()) return;
  diagnostics_.error(map.origin, fmt::format("{}: expected a map {{...}}, found {}", what_, map.kind_name()));
  map_.kind = Node::Kind::map;
}

std::optional<Entry> MapReader::take(std::string_view key, bool required) {
  taken_.emplace_back(key);
  const Entry* entry = whole_.find(key);
  if (entry == nullptr) {
    if (required && whole_.is_map()) diagnostics_.error(whole_.origin, fmt::format("{} has no key '{}'", what_, key));
    return std::nullopt;
  }
  map_.erase(key);
  return *entry;
}

void MapReader::check_keys(const std::vector<std::string>& described,
                           std::initializer_list<std::string_view> required) {
  std::vector<std::string> known = described;
  known.insert(known.end(), taken_.begin(), taken_.end());
  const Node given = map_;
  for (const Entry& entry : given.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    const std::string hint = did_you_mean(entry.key, known);
    diagnostics_.error(entry.origin, fmt::format("unknown key '{}' in {}{}", printable(entry.key), what_,
                                                 hint.empty() ? "; exists: " + join(known) : hint));
    map_.erase(entry.key);
  }
  if (!whole_.is_map()) return;  // that is the mistake, not the keys
  for (const std::string_view key : required)
    if (whole_.find(key) == nullptr) diagnostics_.error(whole_.origin, fmt::format("{} has no key '{}'", what_, key));
}

const config::Origin& MapReader::origin(std::string_view key) const {
  const Entry* entry = whole_.find(key);
  return entry == nullptr ? whole_.origin : entry->value.origin;
}

void for_each_map(const Entry& entry, config::Diagnostics& diagnostics, const std::function<void(const Node&)>& use) {
  if (entry.value.kind != Node::Kind::list) {
    diagnostics.error(entry.origin,
                      fmt::format("{}: expected a list of maps, found {}", entry.key, entry.value.kind_name()));
    return;
  }
  for (const Node& item : entry.value.items) use(item);
}

}  // namespace csdsim::reproduction
