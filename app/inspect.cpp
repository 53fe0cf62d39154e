#include <fmt/format.h>

#include <cstdio>

#include "app/commands.h"
#include "base/error.h"
#include "experiment/datasheet/datasheet.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "reproduction/papers.h"
#include "scenario/catalog.h"
#include "scenario/schema.h"

namespace csdsim::app {

int check(const std::vector<std::filesystem::path>& scenarios, const std::vector<std::string>& overrides) {
  int status = 0;
  for (const auto& path : scenarios) {
    try {
      const scenario::Loaded loaded = experiment::load_scenario(path, overrides);
      for (const std::string& note : loaded.base.notes) std::fprintf(stderr, "%s\n", note.c_str());
      fmt::print("{}: ok{}\n", path.string(),
                 loaded.points.empty() ? "" : fmt::format(", sweep of {} points", loaded.points.size()));
      fmt::print("  {}\n", experiment::peaks_text(loaded.base.scenario.platform.device));
    } catch (const UserError& error) {  // report every file
      std::fprintf(stderr, "%s\n", error.what());
      status = 2;
    }
  }
  return status;
}

int list(const std::string& kind, const std::vector<std::filesystem::path>& plugins) {
  scenario::CatalogCategory papers{.name = "papers", .items = {}};
  for (const reproduction::PaperName& paper : reproduction::builtin_papers())
    papers.items.push_back({paper.name, paper.title});
  fmt::print("{}", scenario::list_text(kind, experiment::registries_with(plugins), {papers}));
  return 0;
}

int describe(const std::string& kind, const std::string& name, Description form,
             const std::vector<std::filesystem::path>& plugins) {
  const auto registries = experiment::registries_with(plugins);
  if (form == Description::markdown) {
    fmt::print("{}", kind == "metrics" ? scenario::metrics_markdown(experiment::all_metrics(*registries))
                                       : scenario::describe_markdown(registries));
  } else if (form == Description::schema) {
    fmt::print("{}\n", scenario::scenario_schema(registries).dump(1));
  } else if (kind == "metrics") {
    fmt::print("{}", scenario::metrics_text(name, experiment::all_metrics(*registries)));
  } else {
    fmt::print("{}", scenario::describe_text(kind.empty() ? "scenario" : kind, name, registries));
  }
  return 0;
}

std::string version_line() {
  const auto build = experiment::build_info();
  return fmt::format("csdsim {} ({}, gcc {})", build["version"].get<std::string>(), build["type"].get<std::string>(),
                     build["compiler"].get<std::string>());
}

}  // namespace csdsim::app
