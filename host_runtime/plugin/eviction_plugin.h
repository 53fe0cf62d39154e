// An eviction policy for KV blocks in a shared library of its own. Its author writes
//
//   #include "host_runtime/plugin/eviction_plugin.h"
//   class MyPolicy final : public csdsim::host::EvictionPolicy { ... };
//   CSDSIM_EVICTION_POLICY(MyPolicy, "my-policy", "What it does differently.")
//
// and links csdsim::csdsim_eviction_plugin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/plugin.h"
#include "base/settings_reader.h"
#include "host_runtime/core/serving/eviction/eviction_policy.h"
#include "host_runtime/core/serving/policy_registry.h"

#ifndef CSDSIM_VERSION
#error "link csdsim::csdsim_eviction_plugin: the target says which version of csdsim this is"
#endif

namespace csdsim::host {

/// Increases with every change of EvictionPolicy or of the types in its interface.
inline constexpr std::uint32_t kEvictionInterface = 1;

using EvictionPlugin = PolicyPlugin<EvictionPolicy, CachePolicyContext>;

/// The function that a plugin exports.
inline constexpr const char* kEvictionPluginEntry = "csdsim_eviction_plugin_v1";

/// Adds the policy of a shared library to the registry and returns its name. The library stays loaded until the program
/// ends. Throws UserError, which names the library, if it does not exist, is no shared library, has no plugin or one
/// for another csdsim, interface or compiler, or if the policy's name is taken.
std::string load_eviction_plugin(const std::filesystem::path& library, EvictionRegistry& registry);

}  // namespace csdsim::host

/// Exports `Policy`, which is constructed from a CachePolicyContext or without arguments, under the name `policy_name`.
/// Use it once per library.
#define CSDSIM_EVICTION_POLICY(Policy, policy_name, policy_summary)                                                   \
  extern "C" __attribute__((visibility("default"))) const csdsim::host::EvictionPlugin* csdsim_eviction_plugin_v1() { \
    static constexpr csdsim::host::EvictionPlugin plugin{                                                             \
        {csdsim::host::kEvictionInterface, CSDSIM_VERSION, CSDSIM_PLUGIN_ABI},                                        \
        policy_name,                                                                                                  \
        policy_summary,                                                                                               \
        [](const csdsim::host::CachePolicyContext& context) {                                                         \
          return csdsim::host::make_cache_policy<csdsim::host::EvictionPolicy, Policy>(policy_name, context);         \
        }};                                                                                                           \
    return &plugin;                                                                                                   \
  }
