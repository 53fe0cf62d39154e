// What exists and what can be set, as text for `csdsim list` and `csdsim describe`.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/registries.h"

namespace csdsim::scenario {

struct CatalogItem {
  std::string name;
  std::string doc;
};

/// "devices", "gpus", "hosts", "models", "systems", "mappings", "workloads", "selections", "methods".
std::vector<std::string> catalog_categories();
/// Members of a category. Throws UserError for an unknown one.
std::vector<CatalogItem> catalog(std::string_view category, const std::shared_ptr<const Registries>& registries);
/// One category, "presets" for all that are presets, or everything for "".
std::string list_text(std::string_view category, const std::shared_ptr<const Registries>& registries);

/// What describe_text takes as its first argument.
std::vector<std::string> describe_kinds(const std::shared_ptr<const Registries>& registries);
/// Parameters with default, unit, range, source and sentence. `kind` is a map of a scenario ("flash", "system",
/// "platform.device.link") or "scenario" for everything; `name` is one of its kinds ("page-l2p") or, for device,
/// gpu, host and model, a preset, of which the values are shown; "methods" tells the budgets of attention methods.
/// Throws UserError that lists what exists.
std::string describe_text(std::string_view kind, std::string_view name,
                          const std::shared_ptr<const Registries>& registries);

/// Every parameter as Markdown tables, a section a map.
std::string describe_markdown(const std::shared_ptr<const Registries>& registries);

}  // namespace csdsim::scenario
