// A configuration as a tree in which every value and key stores its origin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace csdsim::config {

/// Layers of a configuration, weakest first. A value of a stronger layer replaces that of a weaker one. `override` is
/// the command line, `axis` the value of a sweep point.
enum class Layer : std::uint8_t { builtin, preset, file, override, axis };

/// The place where a key or value was written.
struct Origin {
  Layer layer = Layer::builtin;
  std::string source;  ///< file name, "preset NAME", "--set a.b=v"
  int line = 0;        ///< from 1; 0 for sources without lines
  int column = 0;      ///< from 1
  std::string note;    ///< for defaults and presets: the source of the value

  /// "file:line:col", "--set a.b=v", "preset NAME".
  std::string text() const;
  friend bool operator==(const Origin&, const Origin&) = default;
};

struct Entry;

/// A null, scalar, list or map. Scalars stay text, because only the parameter knows their type.
class Node {
 public:
  enum class Kind : std::uint8_t { null, scalar, list, map };

  Kind kind = Kind::null;
  Origin origin;
  std::string scalar;
  std::vector<Node> items;
  std::vector<Entry> entries;  ///< in the order of the file, keys are unique

  bool is_map() const { return kind == Kind::map; }
  /// "text", "list", "map", "no value".
  std::string_view kind_name() const;

  Entry* find(std::string_view key);
  const Entry* find(std::string_view key) const;
  /// Removes a key and its value.
  void erase(std::string_view key);
};

struct Entry {
  std::string key;
  Origin origin;  ///< origin of the key
  Node value;
};

/// Merges `upper` into `lower`: maps are merged key by key, everything else is replaced.
void merge(Node& lower, const Node& upper);

/// Merges a value into the node at `path` ("a.b.c"). Creates missing maps on the path and replaces other nodes on it.
/// Below "sweep.axes." the rest of the path is one key, because axes are named by paths.
void set_path(Node& root, std::string_view path, const Node& value);

/// Returns the value at "a.b.c", or nullptr.
const Node* find_path(const Node& root, std::string_view path);

}  // namespace csdsim::config
