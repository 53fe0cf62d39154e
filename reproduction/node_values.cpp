#include "reproduction/node_values.h"

#include <charconv>

namespace csdsim::reproduction {

using config::Entry;
using config::Node;
using nlohmann::ordered_json;

namespace {

template <class Leaf>
ordered_json tree_of(const Node& node, const Leaf& leaf) {
  ordered_json json;
  switch (node.kind) {
    case Node::Kind::null:
      return nullptr;
    case Node::Kind::scalar:
      return leaf(node.scalar);
    case Node::Kind::list:
      json = ordered_json::array();
      for (const Node& item : node.items) json.push_back(tree_of(item, leaf));
      return json;
    case Node::Kind::map:
      json = ordered_json::object();
      for (const Entry& entry : node.entries) json[entry.key] = tree_of(entry.value, leaf);
      return json;
  }
  return json;
}

ordered_json value_of(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  const char* const end = text.data() + text.size();
  if (std::int64_t whole = 0; std::from_chars(text.data(), end, whole) == std::from_chars_result{end, {}}) return whole;
  if (double number = 0; std::from_chars(text.data(), end, number) == std::from_chars_result{end, {}} &&
                         text.find_first_of("0123456789") != std::string::npos)
    return number;
  return text;
}

}  // namespace

ordered_json json_of(const Node& node) { return tree_of(node, value_of); }

std::string flow_text(const Node& node) {
  // JSON is flow YAML; a single value needs no quotes, because the rest of the assignment is its text.
  if (node.kind == Node::Kind::scalar) return node.scalar;
  return tree_of(node, [](const std::string& text) { return ordered_json(text); }).dump();
}

}  // namespace csdsim::reproduction
