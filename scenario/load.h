// Loads and checks scenario files.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config/reader.h"
#include "report/search.h"
#include "scenario/scenario.h"

namespace csdsim::scenario {

/// A scenario with the origin of every value.
struct Resolved {
  Scenario scenario;
  config::Origins origins;
  std::vector<std::string> notes;  ///< "file:line:col: note: ...", for the user
  std::vector<std::string> found;  ///< those of them that its checks found
  std::string question;            ///< the comment at the top of the file, in one line: what the scenario asks
};

/// One point of a sweep. It has no origins: they would take more memory than all else, 10,000 times.
struct SweepPoint {
  std::string name;  ///< "channels=4,channel_bandwidth=0.7GBps": unique, fit for a directory
  std::vector<std::pair<std::string, std::string>> axes;  ///< path and value, in the order of the file
  std::vector<std::size_t> indices;                       ///< indices of these values on their axes
  Scenario scenario;
  std::vector<std::string> notes;  ///< notes of its checks and axes, without keys of other kinds, which it does not use
  std::string refusal;             ///< what its checks found, a line each: it cannot run; empty if it can
};

struct Loaded {
  Resolved base;                   ///< without the sweep
  std::vector<SweepPoint> points;  ///< last axis fastest; empty without a sweep
  report::Search search;           ///< what the sweep searches for

  /// The number of points that their checks refuse.
  std::size_t refused() const;
};

/// The notes of the base, except what its checks found and those of no point have; then those that only points have,
/// with the name of the first point that has it: the first kMaxPointNotes, and how many more there are.
std::vector<std::string> all_notes(const Loaded& loaded);
inline constexpr std::size_t kMaxPointNotes = 8;

/// Maximum number of points of a sweep.
inline constexpr std::size_t kMaxSweepPoints = 10'000;
/// The same before `where` leaves points out.
inline constexpr std::size_t kMaxSweepGrid = 1'000'000;

/// Reads and checks a file with the `--set` assignments ("a.b=v") applied, and every point of its sweep. Relative paths
/// are looked up beside the file, then in the current directory. A point that its checks refuse, because its values do
/// not fit together, has its reason; if they refuse all points, that is a mistake of the file. `registries` are the
/// kinds that the file can name besides those of its plugins; `attention_on_host`: see Scenario. Throws
/// config::ConfigError with all mistakes, UserError when the file cannot be read.
Loaded load_scenario(const std::filesystem::path& file, const std::vector<std::string>& sets,
                     const std::shared_ptr<const Registries>& registries, bool attention_on_host = false);

/// The same for text. `name` replaces the file name in messages; relative paths are looked up in `directory`.
Loaded load_scenario_text(std::string_view text, const std::string& name, const std::filesystem::path& directory,
                          const std::vector<std::string>& sets, const std::shared_ptr<const Registries>& registries,
                          bool attention_on_host = false);

/// The complete effective configuration with `csdsim: 1`; loading it again gives the same scenario. Parts that the
/// workload does not use are absent.
nlohmann::ordered_json effective_config(const Scenario& scenario);

}  // namespace csdsim::scenario
