// Presets: named layers of values, each with its source. Part of the binary (scenario/presets/*.yaml).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/reader.h"

namespace csdsim::scenario {

struct Preset {
  std::string name;
  std::string doc;
  config::Node values;  ///< every scalar's origin carries "source: citation" as its note
};

/// All presets, in the order of their files. Those of kind `interface` are nfc::interface_modes().
class Presets final : public config::PresetSource {
 public:
  /// The built-in presets. Throws InternalError when one of them cannot be read.
  static const Presets& builtin();

  /// Adds the presets of one file: `kind: K`, `presets: {NAME: {doc, values}}`. Every value has the form {v, src,
  /// cite}. Throws ConfigError.
  void add(std::string_view file_name, std::string_view text);

  const config::Node* find(std::string_view kind, std::string_view name) const override;
  std::vector<std::string> names(std::string_view kind) const override;

  const Preset* preset(std::string_view kind, std::string_view name) const;
  /// "device", "gpu", ...
  const std::vector<std::string>& kinds() const { return kinds_; }

 private:
  void add_interfaces();

  std::vector<std::string> kinds_;
  std::map<std::string, std::vector<Preset>, std::less<>> by_kind_;
};

}  // namespace csdsim::scenario
