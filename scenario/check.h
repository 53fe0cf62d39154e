// Checks across parameters. Ranges of single values are checked while reading.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "base/config/diagnostics.h"
#include "base/config/problems.h"
#include "base/config/reader.h"
#include "scenario/scenario.h"

namespace csdsim::scenario {

/// What the checks need: the values, where they come from, and where to complain.
class Checker final : public config::Problems {
 public:
  Checker(Scenario& scenario, const config::Reader& reader, std::filesystem::path directory,
          config::Diagnostics& diagnostics);

  Scenario& scenario() { return scenario_; }

  /// False when one of the values could not be read: then nothing can be said about it.
  bool readable(std::initializer_list<std::string_view> paths) const override;
  /// Records an error at the strongest of the origins of `paths` unless `ok` or one of them could not be read. A value
  /// of a preset is located at the key that names the preset.
  void require(bool ok, std::initializer_list<std::string_view> paths, const std::string& message) override;

  config::Layer layer(std::string_view path) const;
  /// In the scenario file or stronger.
  bool given(std::string_view path) const override { return layer(path) >= config::Layer::file; }
  void error_at(std::string_view path, const std::string& message) override;
  void note_at(std::string_view path, const std::string& message) override;

  /// `path` has no effect because of `because`: an error where it was given at least as strongly, otherwise a note.
  void refuse_unused(std::string_view path, std::string_view because, const std::string& why) override;
  std::string_view stronger(std::string_view first, std::string_view second) const override {
    return layer(first) > layer(second) ? first : second;
  }

  /// Two settings of which only one may count. The stronger layer wins; both given in the same layer is an error. True
  /// when the first is the one that counts.
  bool first_wins(std::string_view first, std::string_view second);

  /// Looks for a relative path in the directory of the scenario, then in the current one. Records an error and returns
  /// false when it is in neither.
  bool resolve(InputPath& input, std::string_view path, std::string_view what);

 private:
  config::Origin origin(std::string_view path) const;

  Scenario& scenario_;
  const config::Reader& reader_;
  std::filesystem::path directory_;
  config::Diagnostics& diagnostics_;
};

/// The mapping policy of the drive; null where it keeps no KV cache, and after recording why it cannot be made. Looks
/// for the library of a plugin.
std::unique_ptr<ftl::KvMappingPolicy> check_mapping(Checker& c);
/// Geometry, links, NVMe, FTL. Settles which of bandwidth and generation of a link counts.
void check_platform(Checker& c);
/// Shape of the model. Reads the shape of a checkpoint. False when there is no usable shape.
bool check_model(Checker& c);
/// The platform, then what the experiment checks.
void check_scenario(Checker& c);

}  // namespace csdsim::scenario
