#include "scenario/plugin.h"

#include <fmt/format.h>

#include "base/error.h"

namespace csdsim::scenario {

void load_plugin(const std::filesystem::path& library, Registries& registries) {
  const auto entry =
      reinterpret_cast<PluginEntry*>(plugin_symbol(library, kPluginEntry, "plugin of csdsim", "CSDSIM_PLUGIN"));
  const Plugin* plugin = entry();
  if (plugin == nullptr) throw UserError(fmt::format("{}: {} returned nothing", library.string(), kPluginEntry));
  check_plugin_build(library, "plugin interface", plugin->build, {kPluginInterface, CSDSIM_VERSION, CSDSIM_PLUGIN_ABI});
  try {
    plugin->register_kinds(registries);
  } catch (const std::exception& e) {
    throw UserError(fmt::format("{}: {}", library.string(), e.what()));
  }
}

}  // namespace csdsim::scenario
