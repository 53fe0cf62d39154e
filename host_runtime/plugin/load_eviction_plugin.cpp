#include <fmt/format.h>

#include "base/error.h"
#include "host_runtime/plugin/eviction_plugin.h"

namespace csdsim::host {

namespace {

constexpr PluginKind kEvictionPlugins{
    "eviction policy",    "eviction plugin",        "eviction interface",
    kEvictionPluginEntry, "CSDSIM_EVICTION_POLICY", {kEvictionInterface, CSDSIM_VERSION, CSDSIM_PLUGIN_ABI}};

}  // namespace

std::string load_eviction_plugin(const std::filesystem::path& library, EvictionRegistry& registry) {
  const auto& plugin = load_policy_plugin<EvictionPlugin>(library, kEvictionPlugins);
  try {
    registry.add(plugin.name, plugin.summary, [library, &plugin](const CachePolicyContext& context) {
      return make_plugin_policy(library, kEvictionPlugins, plugin, context);
    });
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", library.string(), e.what()));
  }
  return plugin.name;
}

}  // namespace csdsim::host
