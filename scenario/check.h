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

/// Gives the checks the values and their origins, and records problems.
class Checker final : public config::Problems {
 public:
  Checker(Scenario& scenario, const config::Reader& reader, std::filesystem::path directory,
          config::Diagnostics& diagnostics);

  Scenario& scenario() { return scenario_; }

  /// False when one of the values could not be read and therefore cannot be checked.
  bool readable(std::initializer_list<std::string_view> paths) const override;
  /// Records an error at the strongest origin of `paths`, unless `ok` is true or one of the values could not be read. A
  /// value of a preset is located at the key that names the preset.
  void require(bool ok, std::initializer_list<std::string_view> paths, const std::string& message) override;

  config::Layer layer(std::string_view path) const;
  /// True if the value was given in the scenario file or a stronger layer.
  bool given(std::string_view path) const override { return layer(path) >= config::Layer::file; }
  void error_at(std::string_view path, const std::string& message) override;
  void note_at(std::string_view path, const std::string& message) override;

  /// Reports that `path` has no effect because of `because`: an error if `path` was given in the same or a stronger
  /// layer, otherwise a note.
  void refuse_unused(std::string_view path, std::string_view because, const std::string& why) override;
  std::string_view stronger(std::string_view first, std::string_view second) const override {
    return layer(first) > layer(second) ? first : second;
  }

  /// Decides between two settings that exclude each other: the stronger layer wins, and it is an error to give both in
  /// the same layer. True when the first setting wins.
  bool first_wins(std::string_view first, std::string_view second);

  /// Looks for a relative path in the directory of the file that gives it, then in the scenario's directory, then in
  /// the current one. Records an error and returns false if it is in none of them; `hint` ends its message.
  bool resolve(InputPath& input, std::string_view path, std::string_view what, const std::string& hint = "");

 private:
  config::Origin origin(std::string_view path) const;

  Scenario& scenario_;
  const config::Reader& reader_;
  std::filesystem::path directory_;
  config::Diagnostics& diagnostics_;
};

/// Makes the mapping policy of the drive; looks for the library of a plugin. Null when the drive keeps no KV cache, and
/// when the policy cannot be made, after recording why.
std::unique_ptr<ftl::KvMappingPolicy> check_mapping(Checker& c);
/// Checks geometry, links, NVMe and FTL. Decides whether bandwidth or generation of a link counts.
/// Takes the capacity of the drives and their over-provisioning as vendors state them into geometry and
/// over_provisioning.
void resolve_capacity(Checker& c);
/// Checks the flash of the drives; a list of latencies by page type sets the single ones.
void check_flash(Checker& c);
void check_platform(Checker& c);
/// Finds the file of a recorded selection. Of token_page_fraction and selected_per_page keeps the one that was given.
void check_selection(Checker& c);
/// Checks the shape of the model; takes it from the checkpoint if there is one. False when there is no usable shape.
bool check_model(Checker& c);
/// Checks the platform, then runs the checks of the experiment.
void check_scenario(Checker& c);

}  // namespace csdsim::scenario
