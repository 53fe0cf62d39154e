#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "app/commands.h"
#include "app/standard_output.h"
#include "app/sweep_rows.h"
#include "base/error.h"
#include "experiment/datasheet/datasheet.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "host_runtime/core/serving/policy_registry.h"
#include "reproduction/papers.h"
#include "scenario/catalog.h"
#include "scenario/schema.h"

namespace csdsim::app {
namespace {

template <class Policy>
scenario::CatalogCategory policies(std::string name, const host::CachePolicyRegistry<Policy>& registry) {
  scenario::CatalogCategory category{.name = std::move(name), .items = {}};
  for (const auto& item : registry.items()) category.items.push_back({item.name, item.doc});
  return category;
}

/// A line about the schema that the first line of a scenario names for editors, if it is not there: the scenario was
/// copied.
std::string missing_schema(const std::filesystem::path& scenario) {
  static constexpr std::string_view kMark = "# yaml-language-server: $schema=";
  std::ifstream file(scenario);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
  if (!line.starts_with(kMark) || line.find("://") != std::string::npos) return "";
  const std::filesystem::path schema = scenario.parent_path() / line.substr(kMark.size());
  if (std::error_code none; std::filesystem::exists(schema, none)) return "";
  return fmt::format("{}:1: note: editors find no schema at {}; csdsim describe --schema > FILE writes it\n",
                     scenario.string(), schema.string());
}

/// The end of the line about a scenario: the number of points of its sweep, and those that do not fit, with the reasons
/// of the first few.
std::string sweep_text(const scenario::Loaded& loaded) {
  if (loaded.points.empty()) return "\n";
  std::vector<PointFailure> refused;
  for (const scenario::SweepPoint& point : loaded.points)
    if (!point.refusal.empty()) refused.push_back({point.name, point.refusal});
  const std::string points = fmt::format(", sweep of {} points", loaded.points.size());
  if (refused.empty()) return points + "\n";
  return fmt::format("{}, {} of which do not fit:\n{}", points, refused.size(), failures_text(refused));
}

}  // namespace

int check(const std::vector<std::filesystem::path>& scenarios, const std::vector<std::string>& overrides) {
  int status = 0;
  for (const auto& path : scenarios) {
    try {
      const scenario::Loaded loaded = experiment::load_scenario(path, overrides);
      for (const std::string& note : scenario::all_notes(loaded)) print_message(fmt::format("{}\n", note));
      print_message(missing_schema(path));
      print_result(fmt::format("{}: ok{}", path.string(), sweep_text(loaded)));
      print_result(fmt::format("  {}\n", experiment::peaks_text(loaded.base.scenario.platform.device)));
    } catch (const UserError& error) {  // report every file
      print_message(fmt::format("{}\n", error.what()));
      status = 2;
    }
  }
  return status;
}

int list(const std::string& kind, Format format, const std::vector<std::filesystem::path>& plugins) {
  scenario::CatalogCategory papers{.name = "papers", .items = {}};
  for (const reproduction::PaperName& paper : reproduction::builtin_papers())
    papers.items.push_back({paper.name, paper.title});
  const auto categories = scenario::listed(kind, experiment::registries_with(plugins),
                                           {papers, policies("evictions", host::builtin_eviction_policies()),
                                            policies("admissions", host::builtin_admission_policies())});
  if (format == Format::json) {
    nlohmann::ordered_json document = nlohmann::ordered_json::object();
    for (const scenario::CatalogCategory& category : categories) {
      document[category.name] = nlohmann::ordered_json::array();
      for (const scenario::CatalogItem& item : category.items)
        document[category.name].push_back({{"name", item.name}, {"doc", item.doc}});
    }
    print_result(document.dump(2) + "\n");
  } else {
    print_result(scenario::list_text(categories));
  }
  return 0;
}

int describe(const std::string& kind, const std::string& name, Description form,
             const std::vector<std::filesystem::path>& plugins) {
  const auto registries = experiment::registries_with(plugins);
  if (form == Description::markdown) {
    print_result(kind == "metrics" ? scenario::metrics_markdown(experiment::all_metrics(*registries))
                                   : scenario::describe_markdown(registries));
  } else if (form == Description::schema) {
    print_result(fmt::format("{}\n", scenario::scenario_schema(registries).dump(1)));
  } else if (form == Description::json) {
    const nlohmann::ordered_json document = kind == "metrics"
                                                ? scenario::metrics_json(name, experiment::all_metrics(*registries))
                                                : scenario::describe_json(kind, name, registries);
    print_result(document.dump(2) + "\n");
  } else if (kind == "metrics") {
    print_result(scenario::metrics_text(name, experiment::all_metrics(*registries)));
  } else {
    print_result(scenario::describe_text(kind.empty() ? "scenario" : kind, name, registries));
  }
  return 0;
}

std::string version_line() {
  const auto build = experiment::build_info();
  return fmt::format("csdsim {} ({}, gcc {})", build["version"].get<std::string>(), build["type"].get<std::string>(),
                     build["compiler"].get<std::string>());
}

}  // namespace csdsim::app
