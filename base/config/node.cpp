#include "base/config/node.h"

#include <fmt/format.h>

#include <algorithm>

namespace csdsim::config {

std::string Origin::text() const {
  if (line > 0) return fmt::format("{}:{}:{}", source, line, column);
  if (!source.empty()) return source;
  return "default";
}

std::string_view Node::kind_name() const {
  switch (kind) {
    case Kind::null:
      return "no value";
    case Kind::scalar:
      return "a single value";
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a map";
  }
  return "?";
}

Entry* Node::find(std::string_view key) {
  const auto it = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
  return it == entries.end() ? nullptr : &*it;
}
const Entry* Node::find(std::string_view key) const { return const_cast<Node*>(this)->find(key); }

void Node::erase(std::string_view key) {
  entries.erase(std::remove_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; }),
                entries.end());
}

void merge(Node& lower, const Node& upper) {
  if (!lower.is_map() || !upper.is_map()) {
    lower = upper;
    return;
  }
  lower.origin = upper.origin;
  for (const Entry& entry : upper.entries) {
    if (Entry* below = lower.find(entry.key)) {
      below->origin = entry.origin;
      merge(below->value, entry.value);
    } else {
      lower.entries.push_back(entry);
    }
  }
}

namespace {

/// Splits the first key off a path.
std::pair<std::string_view, std::string_view> split(std::string_view path) {
  const auto dot = path.find('.');
  if (dot == std::string_view::npos) return {path, {}};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

/// True if the rest of a path that begins with `before` is one key.
bool is_axis_name(std::string_view before) { return before == "sweep.axes." || before == "sweep.zip."; }

}  // namespace

void set_path(Node& root, std::string_view path, const Node& value) {
  Node* node = &root;
  std::string_view rest = path;
  bool axis_name = false;
  while (true) {
    auto [key, tail] = axis_name ? std::pair{rest, std::string_view{}} : split(rest);
    if (!node->is_map()) {
      *node = Node{};
      node->kind = Node::Kind::map;
      node->origin = value.origin;
    }
    Entry* entry = node->find(key);
    if (!entry) {
      node->entries.push_back({std::string(key), value.origin, {}});
      entry = &node->entries.back();
      entry->value.origin = value.origin;
    }
    if (tail.empty()) {
      entry->origin = value.origin;
      merge(entry->value, value);
      return;
    }
    node = &entry->value;
    rest = tail;
    axis_name = is_axis_name(path.substr(0, path.size() - rest.size()));
  }
}

const Node* find_path(const Node& root, std::string_view path) {
  const Node* node = &root;
  while (!path.empty()) {
    const auto [key, tail] = split(path);
    const Entry* entry = node->find(key);
    if (!entry) return nullptr;
    node = &entry->value;
    path = tail;
  }
  return node;
}

}  // namespace csdsim::config
