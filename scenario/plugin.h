// Offload systems and experiments in a shared library. Its author writes
//
//   #include "scenario/plugin.h"
//   class MySystem final : public csdsim::host::CopyableSystem<MySystem> { ... };
//   CSDSIM_PLUGIN(registries.systems.add<MySystem>())
//
// and links csdsim::csdsim_scenario. A scenario names the library with `plugins: [FILE]`, the commands list and
// describe with --plugin FILE. examples/own_offload_system is a complete example.
#pragma once

#include <filesystem>

#include "base/plugin.h"
#include "scenario/registries.h"

#ifndef CSDSIM_VERSION
#error "link csdsim::csdsim_scenario: the target says which version of csdsim this is"
#endif

namespace csdsim::scenario {

/// Version of the plugin interface. Increment it when OffloadSystem, Experiment or the types of their arguments change.
inline constexpr std::uint32_t kPluginInterface = 3;

struct Plugin {
  PluginBuild build;  ///< checked before the rest is used
  void (*register_kinds)(Registries& registries);
};

using PluginEntry = const Plugin*();
inline constexpr const char* kPluginEntry = "csdsim_plugin_v1";

/// Adds the kinds of a shared library to the registries. Throws UserError with the name of the library when it cannot
/// be loaded, is not a plugin, was built for another csdsim or compiler, or registers a name that exists.
void load_plugin(const std::filesystem::path& library, Registries& registries);

}  // namespace csdsim::scenario

/// Defines the entry point of a plugin, which evaluates `registration`, an expression on `registries`. Use it once per
/// library.
#define CSDSIM_PLUGIN(registration)                                                                      \
  extern "C" __attribute__((visibility("default"))) const csdsim::scenario::Plugin* csdsim_plugin_v1() { \
    static constexpr csdsim::scenario::Plugin plugin{                                                    \
        {csdsim::scenario::kPluginInterface, CSDSIM_VERSION, CSDSIM_PLUGIN_ABI},                         \
        [](csdsim::scenario::Registries& registries) { registration; }};                                 \
    return &plugin;                                                                                      \
  }
