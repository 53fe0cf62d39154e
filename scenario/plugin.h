// Offload systems and experiments in a shared library. Its author writes
//
//   #include "scenario/plugin.h"
//   class MySystem final : public csdsim::host::CopyableSystem<MySystem> { ... };
//   CSDSIM_PLUGIN(registries.systems.add<MySystem>())
//
// and links csdsim::csdsim_scenario; a scenario names the library with `plugins: [FILE]`, the commands list and
// describe with --plugin FILE. examples/own_offload_system has the whole of it.
#pragma once

#include <filesystem>

#include "base/plugin.h"
#include "scenario/registries.h"

#ifndef CSDSIM_VERSION
#error "link csdsim::csdsim_scenario: the target says which version of csdsim this is"
#endif

namespace csdsim::scenario {

/// Grows with every change of OffloadSystem, Experiment and of what they are given.
inline constexpr std::uint32_t kPluginInterface = 1;

struct Plugin {
  PluginBuild build;  ///< checked before the rest is used
  void (*register_kinds)(Registries& registries);
};

using PluginEntry = const Plugin*();
inline constexpr const char* kPluginEntry = "csdsim_plugin_v1";

/// Adds the kinds of a shared library to the registries. UserError, which names the library, if it cannot be loaded, is
/// no plugin, was built for another csdsim or compiler, or registers a name that is taken.
void load_plugin(const std::filesystem::path& library, Registries& registries);

}  // namespace csdsim::scenario

/// Exports what `registration`, an expression on `registries`, adds. Once per library.
#define CSDSIM_PLUGIN(registration)                                                                      \
  extern "C" __attribute__((visibility("default"))) const csdsim::scenario::Plugin* csdsim_plugin_v1() { \
    static constexpr csdsim::scenario::Plugin plugin{                                                    \
        {csdsim::scenario::kPluginInterface, CSDSIM_VERSION, CSDSIM_PLUGIN_ABI},                         \
        [](csdsim::scenario::Registries& registries) { registration; }};                                 \
    return &plugin;                                                                                      \
  }
