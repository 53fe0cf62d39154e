#include "base/config/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace csdsim::config {

std::string cite_text(Cite cite) { return fmt::format("{}: {}", to_string(cite.source), cite.where); }

Reader::Reader(Node root, const PresetSource& presets, Diagnostics& diagnostics, Hint hint)
    : root_(std::move(root)), presets_(presets), diagnostics_(diagnostics), hint_(std::move(hint)) {
  frames_.push_back({&root_, "", {}, {}, {}});
}

void Reader::fail(const std::string& path, const Origin& origin, const std::string& message) {
  failed_.insert(path);
  diagnostics_.error(origin, fmt::format("{}: {}", path, message));
}

void Reader::fail_shape(const std::string& path, const Entry& entry, std::string_view expected) {
  fail(path, entry.value.kind == Node::Kind::null ? entry.origin : entry.value.origin,
       fmt::format("expected {}, found {}", expected, entry.value.kind_name()));
}

const Node* Reader::scalar_under(std::string_view name) {
  const Entry* entry = top().map->find(name);
  if (!entry) return nullptr;
  if (entry->value.kind == Node::Kind::scalar) return &entry->value;
  fail_shape(path_of(name), *entry, "a single value");
  return nullptr;
}

void Reader::on_param(Param& param) {
  top().known.emplace_back(param.name);
  const std::string path = path_of(param.name);
  const Entry* entry = top().map->find(param.name);
  if (!entry) {
    origins_[path] = Origin{Layer::builtin, "", 0, 0, cite_text(param.cite)};
    return;
  }
  const Node& value = entry->value;
  origins_[path] = value.origin;
  std::vector<std::string> texts;
  if (param.takes_list() && !(param.takes_single() && value.kind == Node::Kind::scalar)) {
    if (value.kind != Node::Kind::list) {
      fail_shape(path, *entry, "a list [...]");
      return;
    }
    for (const Node& item : value.items) {
      if (item.kind != Node::Kind::scalar) {
        fail(path, item.origin, fmt::format("expected a list of single values, found {} in it", item.kind_name()));
        return;
      }
      texts.push_back(item.scalar);
    }
  } else {
    const Node* scalar = scalar_under(param.name);
    if (!scalar) return;
    texts.push_back(scalar->scalar);
  }
  try {
    param.set(texts);
    // "Gb/s" and "GB/s" differ by a factor of eight.
    if (texts.size() == 1 && texts.front().ends_with("b/s") && value.origin.layer != Layer::preset)
      diagnostics_.note(value.origin, fmt::format("{}: {} counts bits: it is {}; bytes per second end in B/s", path,
                                                  printable(texts.front()), join(param.texts())));
  } catch (const UserError& e) {
    fail(path, value.origin, e.what());
  }
}

void Reader::on_entries(std::string_view name, std::map<std::string, std::string>& value, std::string_view, Cite cite) {
  top().known.emplace_back(name);
  const std::string path = path_of(name);
  const Entry* entry = top().map->find(name);
  if (!entry) {
    origins_[path] = Origin{Layer::builtin, "", 0, 0, cite_text(cite)};
    return;
  }
  origins_[path] = entry->value.origin;
  if (!entry->value.is_map()) {
    fail_shape(path, *entry, "a map {...}");
    return;
  }
  for (const Entry& given : entry->value.entries) {
    const std::string own = fmt::format("{}.{}", path, given.key);
    origins_[own] = given.value.origin;
    if (given.value.kind != Node::Kind::scalar) {
      fail_shape(own, given, "a single value");
      failed_.insert(path);
      continue;
    }
    value[given.key] = given.value.scalar;
  }
}

const Node* Reader::named_preset(std::string_view key, std::string_view kind, std::string& name) {
  top().known.emplace_back(key);
  const std::string path = path_of(key);
  const Node* scalar = scalar_under(key);
  if (scalar) name = scalar->scalar;
  origins_[path] = scalar ? scalar->origin : Origin{Layer::builtin, "", 0, 0, fmt::format("no {}", key)};
  if (name.empty()) {
    if (scalar) fail(path, scalar->origin, "is an empty text");
    return nullptr;
  }
  const Node* values = presets_.find(kind, name);
  if (!values) {
    const auto names = presets_.names(kind);
    fail(path, origins_[path],
         fmt::format("unknown {} preset '{}'{}; exists: {}", kind, printable(name), did_you_mean(name, names),
                     join(names)));
  }
  return values;
}

void Reader::on_shorthand(std::string_view key, std::string_view kind, std::string& name, std::string_view) {
  const Node* values = named_preset(key, kind, name);
  if (!values) return;
  for (Entry entry : values->entries) {
    // The origin of a preset value is the key that names the preset; the note keeps the source of the value.
    Origin origin = origins_[path_of(key)];
    origin.note = entry.value.origin.note;
    entry.origin = entry.value.origin = origin;
    if (Entry* given = top().map->find(entry.key)) {
      if (given->value.origin.layer < origin.layer) *given = entry;
    } else {
      top().map->entries.push_back(entry);
    }
  }
}

void Reader::on_preset(std::string_view kind, std::string& name) {
  const Node* values = named_preset("preset", kind, name);
  if (!values) return;
  const Origin own = top().map->origin;
  Node layered = *values;
  merge(layered, *top().map);
  *top().map = std::move(layered);
  top().map->origin = own;
}

void Reader::on_enter(std::string_view name, std::string_view) {
  top().known.emplace_back(name);
  Entry* entry = top().map->find(name);
  if (!entry || !entry->value.is_map()) {
    if (entry) {
      fail_shape(path_of(name), *entry, "a map {...}");
      top().map->erase(name);
    }
    Entry made{std::string(name), top().map->origin, {}};
    made.value.kind = Node::Kind::map;
    made.value.origin = top().map->origin;
    made.value.origin.layer = Layer::builtin;  // not in the file; the position is for messages
    top().map->entries.push_back(std::move(made));
    entry = &top().map->entries.back();
  }
  frames_.push_back({&entry->value, path_of(name) + ".", {}, {}, {}});
}

bool Reader::on_optional_section(std::string_view name, std::string_view none, std::string_view, Cite cite,
                                 bool present) {
  const Entry* entry = top().map->find(name);
  const std::string path = path_of(name);
  if (!entry) {
    top().known.emplace_back(name);
    origins_[path] = Origin{Layer::builtin, "", 0, 0, cite_text(cite)};
    return present;
  }
  origins_[path] = entry->value.origin;
  if (entry->value.is_map()) return true;
  top().known.emplace_back(name);
  if (entry->value.kind == Node::Kind::scalar && entry->value.scalar == none) return false;
  fail_shape(path, *entry, fmt::format("a map {{...}} or {}", none));
  return false;
}

std::vector<std::size_t> Reader::on_choice(const ChoiceInfo& info) {
  top().known.emplace_back("kind");
  std::size_t index = info.current;
  const std::string path = path_of("kind");
  const Node* scalar = scalar_under("kind");
  origins_[path] = scalar ? scalar->origin : Origin{Layer::builtin, "", 0, 0, cite_text(info.cite)};
  if (scalar) {
    const auto it = std::find(info.kinds.begin(), info.kinds.end(), scalar->scalar);
    if (it == info.kinds.end()) {
      fail(path, scalar->origin,
           fmt::format("unknown kind '{}'{}; exists: {}", printable(scalar->scalar),
                       did_you_mean(scalar->scalar, info.kinds), join(info.kinds)));
      // Without the kind the other keys cannot be checked.
      for (const Entry& entry : top().map->entries) top().known.push_back(entry.key);
      return {};
    }
    index = static_cast<std::size_t>(it - info.kinds.begin());
  }
  top().choice = {info};
  top().choice.front().current = index;
  top().kind_origin = origins_[path];
  return {index};
}

/// The path of an entry down to its value: "flash.channels" for the entry {flash: {channels: 8}}.
static std::string leaf_path(const Entry& entry) {
  std::string path = entry.key;
  for (const Node* value = &entry.value; value->is_map() && value->entries.size() == 1;
       value = &value->entries.front().value)
    path += "." + value->entries.front().key;
  return path;
}

void Reader::report_unknown(const Frame& frame, const Entry& entry) {
  const std::string where = frame.path.empty() ? "" : " in " + frame.path.substr(0, frame.path.size() - 1);
  if (!frame.choice.empty()) {
    const ChoiceInfo& choice = frame.choice.front();
    std::vector<std::string> owners;
    for (std::size_t i = 0; i < choice.kinds.size(); ++i) {
      const std::vector<std::string> names = choice.keys(i);
      if (std::find(names.begin(), names.end(), entry.key) != names.end()) owners.push_back(choice.kinds[i]);
    }
    if (!owners.empty()) {
      const std::string& kind = choice.kinds[choice.current];
      if (entry.value.origin.layer < frame.kind_origin.layer) {
        diagnostics_.note(entry.origin, fmt::format("{}{} is not used: {} asks for kind {}", frame.path, entry.key,
                                                    frame.kind_origin.text(), kind));
      } else {
        diagnostics_.error(entry.origin,
                           fmt::format("'{}'{} belongs to kind {}, not to {}", entry.key, where, join(owners), kind));
      }
      return;
    }
  }
  std::string hint = did_you_mean(entry.key, frame.known);
  if (hint.empty() && hint_) hint = hint_(leaf_path(entry));
  diagnostics_.error(entry.origin,
                     fmt::format("unknown key '{}'{}{}", printable(entry.key), where,
                                 hint.empty() && !frame.known.empty() ? "; exists: " + join(frame.known) : hint));
}

void Reader::leave_map() {
  const Frame frame = std::move(frames_.back());
  frames_.pop_back();
  for (const Entry& entry : frame.map->entries) {
    if (std::find(frame.known.begin(), frame.known.end(), entry.key) == frame.known.end()) report_unknown(frame, entry);
  }
}

}  // namespace csdsim::config
