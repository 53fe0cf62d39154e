#include "ftl/plugin/load_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <exception>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "ftl/plugin/mapping_plugin.h"

namespace csdsim::ftl {

namespace {

const MappingPlugin& plugin_in(const std::filesystem::path& library) {
  const std::string shown = library.string();
  std::error_code code;
  if (!std::filesystem::exists(library, code)) throw UserError(fmt::format("{} does not exist", shown));
  // With a bare name the loader would look in the system's directories only.
  void* handle = dlopen(std::filesystem::absolute(library).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    throw UserError(fmt::format("{} cannot be loaded: {}", shown, why != nullptr ? why : "no reason given"));
  }
  const auto entry = reinterpret_cast<MappingPluginEntry*>(dlsym(handle, kMappingPluginEntry));
  if (entry == nullptr) {
    throw UserError(fmt::format("{} is no mapping plugin: it does not export {} (CSDSIM_MAPPING_POLICY does)", shown,
                                kMappingPluginEntry));
  }
  const MappingPlugin* plugin = entry();
  if (plugin == nullptr) throw UserError(fmt::format("{}: {} returned nothing", shown, kMappingPluginEntry));
  return *plugin;
}

void check_build(const std::filesystem::path& library, const MappingPlugin& plugin) {
  const auto same = [&](std::string_view what, const auto& theirs, const auto& ours) {
    if (theirs == ours) return;
    throw UserError(fmt::format("{} was built for {} {}, this is {} {}: build it again against this csdsim",
                                library.string(), what, theirs, what, ours));
  };
  same("mapping interface", plugin.interface, kMappingInterface);
  same("csdsim", std::string_view(plugin.version), std::string_view(CSDSIM_VERSION));
  same("compiler", std::string_view(plugin.abi), std::string_view(CSDSIM_PLUGIN_ABI));
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
  check_build(library, plugin);
  try {
    registry.add({plugin.name, plugin.summary,
                  [library, &plugin](const PolicyContext& context) { return make(library, plugin, context); }});
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", library.string(), e.what()));
  }
  return plugin.name;
}

}  // namespace csdsim::ftl
