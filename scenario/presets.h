// Presets: named layers of values, each with its source. Part of the binary (scenario/presets/*.yaml).
#pragma once

#include <map>
#include <memory>
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

/// All presets, in the order of their files. Those of kind `interface` are nfc::interface_modes(). A built-in preset is
/// read when it is asked for: reading all takes longer than the rest of a start. Copies share what was read.
class Presets final : public config::PresetSource {
 public:
  /// The built-in presets. Asking for one that cannot be read throws InternalError.
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
  struct Item {
    Preset preset;          ///< a preset that is not read has only its name
    std::string_view text;  ///< text of the file of a preset that is not read; empty otherwise
  };
  void add_interfaces();
  void add_unread(std::string_view text);
  std::vector<std::shared_ptr<Item>>& list(const std::string& kind);
  Item* item(std::string_view kind, std::string_view name) const;

  std::vector<std::string> kinds_;
  std::map<std::string, std::vector<std::shared_ptr<Item>>, std::less<>> by_kind_;
};

}  // namespace csdsim::scenario
