#include "ftl/plugin/load_plugin.h"

#include <fmt/format.h>

#include <exception>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/plugin.h"
#include "ftl/plugin/mapping_plugin.h"

namespace csdsim::ftl {

namespace {

const MappingPlugin& plugin_in(const std::filesystem::path& library) {
  const auto entry = reinterpret_cast<MappingPluginEntry*>(
      plugin_symbol(library, kMappingPluginEntry, "mapping plugin", "CSDSIM_MAPPING_POLICY"));
  const MappingPlugin* plugin = entry();
  if (plugin == nullptr) throw UserError(fmt::format("{}: {} returned nothing", library.string(), kMappingPluginEntry));
  return *plugin;
}

std::unique_ptr<KvMappingPolicy> make(const std::filesystem::path& library, const MappingPlugin& plugin,
                                      const PolicyContext& context) {
  std::unique_ptr<KvMappingPolicy> policy;
  try {
    policy = plugin.make(context);
  } catch (const std::exception& e) {
    throw UserError(
        fmt::format("{}: mapping policy {} could not be made: {}", library.string(), plugin.name, e.what()));
  }
  if (policy == nullptr) throw UserError(fmt::format("{}: there is no policy in it", library.string()));
  if (policy->name() != plugin.name) {
    throw UserError(fmt::format("{}: the mapping policy is registered as '{}' and calls itself '{}'", library.string(),
                                plugin.name, policy->name()));
  }
  return policy;
}

}  // namespace

std::string load_mapping_plugin(const std::filesystem::path& library, PolicyRegistry& registry) {
  const MappingPlugin& plugin = plugin_in(library);
  check_plugin_build(library, "mapping interface", plugin.build,
                     {kMappingInterface, CSDSIM_VERSION, CSDSIM_PLUGIN_ABI});
  try {
    registry.add({plugin.name, plugin.summary,
                  [library, &plugin](const PolicyContext& context) { return make(library, plugin, context); }});
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", library.string(), e.what()));
  }
  return plugin.name;
}

}  // namespace csdsim::ftl
