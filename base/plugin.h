// Shared libraries that add kinds to csdsim: what such a library says of the build that it was made for, and how it is
// opened. ftl/plugin/mapping_plugin.h, host_runtime/plugin/eviction_plugin.h and scenario/plugin.h build on it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

#define CSDSIM_PLUGIN_TEXT_OF(x) #x
#define CSDSIM_PLUGIN_TEXT(x) CSDSIM_PLUGIN_TEXT_OF(x)
#ifdef __clang__
#define CSDSIM_PLUGIN_COMPILER "clang " CSDSIM_PLUGIN_TEXT(__clang_major__)
#else
#define CSDSIM_PLUGIN_COMPILER "gcc " CSDSIM_PLUGIN_TEXT(__GNUC__)
#endif
/// What the compilers of csdsim and of a plugin must have in common: compiler, language version and layout of the
/// standard library.
#define CSDSIM_PLUGIN_ABI \
  CSDSIM_PLUGIN_COMPILER  \
  ", C++ " CSDSIM_PLUGIN_TEXT(__cplusplus) ", strings " CSDSIM_PLUGIN_TEXT(_GLIBCXX_USE_CXX11_ABI)

namespace csdsim {

/// The build that a plugin was made for.
struct PluginBuild {
  std::uint32_t interface;  ///< version of the interface that it implements
  const char* version;      ///< version of csdsim
  const char* abi;          ///< CSDSIM_PLUGIN_ABI
};

/// Why the loader would reject a file with this content, or end the program while it reads it: it is no shared library
/// of this machine, or a truncated one. Empty if it would not.
std::string why_no_library(const std::string& file);

/// Loads a shared library and returns the address of `symbol` in it. The library stays loaded until the program ends,
/// so that its objects and exceptions outlive every registry. UserError, which names the library, if it does not exist,
/// is no shared library or a truncated one, or does not export the symbol; `what` says what it would be ("mapping
/// plugin"), `macro` what exports it.
void* plugin_symbol(const std::filesystem::path& library, const char* symbol, std::string_view what,
                    std::string_view macro);

/// True if a policy is named by the path of its library.
inline bool names_library(std::string_view policy) {
  return policy.find('/') != std::string_view::npos || policy.ends_with(".so");
}

/// UserError, which names the library and both builds, if they differ. `what` names the interface.
void check_plugin_build(const std::filesystem::path& library, std::string_view what, const PluginBuild& theirs,
                        const PluginBuild& ours);

/// Constants of one kind of plugin.
struct PluginKind {
  std::string_view policy;     ///< what a plugin contains: "mapping policy"
  std::string_view plugin;     ///< "mapping plugin"
  std::string_view interface;  ///< "mapping interface"
  const char* symbol;          ///< the function that returns the plugin
  std::string_view macro;      ///< what defines that function
  PluginBuild build;           ///< build of this program
};

/// What the plugin of a policy states about itself.
template <class Policy, class Context>
struct PolicyPlugin {
  PluginBuild build;    ///< checked before the rest is used
  const char* name;     ///< by which the policy is registered
  const char* summary;  ///< one line
  std::unique_ptr<Policy> (*make)(const Context& context);
};

/// Loads the plugin of a policy, a PolicyPlugin. Throws UserError, which names the
/// library, if it cannot be loaded or was made for another build.
template <class Plugin>
const Plugin& load_policy_plugin(const std::filesystem::path& library, const PluginKind& kind) {
  const auto entry =
      reinterpret_cast<const Plugin* (*)()>(plugin_symbol(library, kind.symbol, kind.plugin, kind.macro));
  const Plugin* plugin = entry();
  if (plugin == nullptr) throw UserError(fmt::format("{}: {} returned nothing", library.string(), kind.symbol));
  check_plugin_build(library, kind.interface, plugin->build, kind.build);
  return *plugin;
}

/// Makes the policy of a plugin. Throws UserError, which names the library, if that fails or the policy calls itself
/// otherwise than the plugin does.
template <class Plugin, class Context>
auto make_plugin_policy(const std::filesystem::path& library, const PluginKind& kind, const Plugin& plugin,
                        const Context& context) -> decltype(plugin.make(context)) {
  decltype(plugin.make(context)) policy;
  try {
    policy = plugin.make(context);
  } catch (const std::exception& e) {
    throw UserError(
        fmt::format("{}: {} {} could not be made: {}", library.string(), kind.policy, plugin.name, e.what()));
  }
  if (policy == nullptr) throw UserError(fmt::format("{}: there is no policy in it", library.string()));
  if (policy->name() != plugin.name) {
    throw UserError(fmt::format("{}: the {} is registered as '{}' and calls itself '{}'", library.string(), kind.policy,
                                plugin.name, policy->name()));
  }
  return policy;
}

}  // namespace csdsim
