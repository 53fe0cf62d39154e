// Builds the texts of `csdsim list` and `csdsim describe`.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/registries.h"

namespace csdsim::scenario {

struct CatalogItem {
  std::string name;
  std::string doc;
};

/// "devices", "gpus", "hosts", "models", "interfaces", "systems", "mappings", "workloads", "selections", "methods".
std::vector<std::string> catalog_categories();
/// Members of a category. Throws UserError for an unknown category.
std::vector<CatalogItem> catalog(std::string_view category, const std::shared_ptr<const Registries>& registries);
/// A category whose members are not part of scenarios.
struct CatalogCategory {
  std::string name;
  std::vector<CatalogItem> items;
};

/// One category; all presets for "presets"; everything for "", what is asked for most first. `more` are categories
/// besides those of scenarios. Throws UserError for an unknown category.
std::vector<CatalogCategory> listed(std::string_view category, const std::shared_ptr<const Registries>& registries,
                                    const std::vector<CatalogCategory>& more = {});
/// Categories as text.
std::string list_text(const std::vector<CatalogCategory>& categories);

/// Valid first arguments of describe_text.
std::vector<std::string> describe_kinds(const std::shared_ptr<const Registries>& registries);
/// Lists parameters with default, type, range, source and meaning. `kind` is a map of a scenario ("flash", "system",
/// "platform.device.link", "device.link") or "scenario" for everything. `name` is one of its kinds ("page-l2p"); for
/// device, gpu, host and model it is a preset, and the values of the preset are shown. `kind` "methods" lists the
/// budgets of attention methods. `kind` may also be such a name itself ("block_io"). Throws UserError that lists the
/// valid names.
std::string describe_text(std::string_view kind, std::string_view name,
                          const std::shared_ptr<const Registries>& registries);

/// The same parameters as a list of {path, kinds, type, range, default, source, cited, meaning}; without `kind` all of
/// them. Throws UserError for what has no parameters.
nlohmann::ordered_json describe_json(std::string_view kind, std::string_view name,
                                     const std::shared_ptr<const Registries>& registries);

/// Paths of all sections and parameters, sorted.
std::vector<std::string> parameter_paths(const std::shared_ptr<const Registries>& registries);

/// What somebody may mean who writes `path`, which is no path of a scenario: the parameters that end in it or nearly
/// so, or whose values have its name: " (did you mean platform.device.flash.channels?)". Empty if there is nothing.
std::string path_hint(std::string_view path, const std::shared_ptr<const Registries>& registries);

/// Every parameter as Markdown tables, one section per map.
std::string describe_markdown(const std::shared_ptr<const Registries>& registries);

}  // namespace csdsim::scenario
