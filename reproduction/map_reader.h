// Reads one map of a definition: some keys by hand, the others into a described struct.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/diagnostics.h"
#include "base/config/reader.h"

namespace csdsim::reproduction {

class MapReader {
 public:
  /// `what` names the map in messages: "a row". Something that is no map is an error and is read as an empty one.
  MapReader(const config::Node& map, std::string what, config::Diagnostics& diagnostics);

  /// Returns the entry of a key that the caller reads by hand. Without value: the key is absent, which is an error if
  /// it is `required`.
  std::optional<config::Entry> take(std::string_view key, bool required = false);

  /// Reads all keys that were not taken. A key that neither take() nor describe() knows is an error, and so is a
  /// required key that is absent.
  template <class S>
  void read(S& fields, std::initializer_list<std::string_view> required) {
    NameList list;
    describe(list, fields);
    check_keys(list.names, required);
    config::Reader reader(map_, no_presets(), diagnostics_);
    reader.read(fields);
  }

  /// Where the value of a key is written; the map, if the key is absent.
  const config::Origin& origin(std::string_view key) const;
  const config::Origin& origin() const { return whole_.origin; }
  bool is_map() const { return whole_.is_map(); }

 private:
  static const config::PresetSource& no_presets();
  void check_keys(const std::vector<std::string>& described, std::initializer_list<std::string_view> required);

  config::Node whole_;
  config::Node map_;  ///< the map without the keys that take() has returned
  std::string what_;
  config::Diagnostics& diagnostics_;
  std::vector<std::string> taken_;
};

/// Calls `use` with each map of the list under `entry`. Something else than a list of maps is an error.
void for_each_map(const config::Entry& entry, config::Diagnostics& diagnostics,
                  const std::function<void(const config::Node&)>& use);

}  // namespace csdsim::reproduction
