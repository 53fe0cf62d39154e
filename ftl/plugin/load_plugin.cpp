#include "ftl/plugin/load_plugin.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/plugin.h"
#include "ftl/plugin/mapping_plugin.h"

namespace csdsim::ftl {

namespace {

constexpr PluginKind kMappingPlugins{"mapping policy",        "mapping plugin",
                                     "mapping interface",     kMappingPluginEntry,
                                     "CSDSIM_MAPPING_POLICY", {kMappingInterface, CSDSIM_VERSION, CSDSIM_PLUGIN_ABI}};

}  // namespace

std::string load_mapping_plugin(const std::filesystem::path& library, PolicyRegistry& registry) {
  const auto& plugin = load_policy_plugin<MappingPlugin>(library, kMappingPlugins);
  try {
    registry.add({plugin.name, plugin.summary, [library, &plugin](const PolicyContext& context) {
                    return make_plugin_policy(library, kMappingPlugins, plugin, context);
                  }});
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", library.string(), e.what()));
  }
  return plugin.name;
}

}  // namespace csdsim::ftl
