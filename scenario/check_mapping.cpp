#include <fmt/format.h>

#include <exception>

#include "ftl/plugin/load_plugin.h"
#include "scenario/check.h"

namespace csdsim::scenario {

namespace {

constexpr std::string_view kKind = "platform.device.ftl.mapping.kind";
constexpr std::string_view kLibrary = "platform.device.ftl.mapping.library";
constexpr std::string_view kSettings = "platform.device.ftl.mapping.settings";

/// False when there is no usable library.
bool check_library(Checker& c, ftl::PluginMapping& plugin) {
  if (!c.readable({kLibrary, kSettings})) return false;
  if (!plugin.library) {
    c.error_at(kLibrary, fmt::format("{}: kind plugin needs the shared library that holds the policy", kLibrary));
    return false;
  }
  if (!c.resolve(*plugin.library, kLibrary, "shared library")) return false;
  try {
    auto registry = ftl::PolicyRegistry::with_builtin();
    ftl::load_mapping_plugin(plugin.library->path, registry);
    return true;
  } catch (const UserError& e) {
    c.error_at(kLibrary, fmt::format("{}: {}", kLibrary, e.what()));
    return false;
  }
}

}  // namespace

std::unique_ptr<ftl::KvMappingPolicy> check_mapping(Checker& c) {
  csd_model::DeviceConfig& device = c.scenario().platform.device;
  if (!c.readable({kKind})) return nullptr;
  const ftl::KvMapping* mapping = ftl::kv_mapping(device.ftl.mapping);
  if (mapping == nullptr) return nullptr;
  if (mapping->tail != ftl::TailPolicy::partial_program) {
    c.refuse_unused("platform.device.ftl.mapping.tail_rewrites", "platform.device.ftl.mapping.tail",
                    "only partial_program writes windows before they are full");
  }
  auto* plugin = std::get_if<ftl::PluginMapping>(&device.ftl.mapping);
  if (plugin != nullptr && !check_library(c, *plugin)) return nullptr;
  const std::string_view place = plugin == nullptr ? kKind : plugin->settings.empty() ? kLibrary : kSettings;
  try {
    return ftl::make_policy(device.ftl.mapping, device.flash.geometry);
  } catch (const std::exception& e) {
    c.error_at(place, fmt::format("{}: {}", place, e.what()));
    return nullptr;
  }
}

}  // namespace csdsim::scenario
