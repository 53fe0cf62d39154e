// A mapping policy in a shared library of its own. Its author writes
//
//   #include "ftl/plugin/mapping_plugin.h"
//   class MyPolicy final : public csdsim::ftl::KvPlanePolicy { ... };
//   CSDSIM_MAPPING_POLICY(MyPolicy, "my-policy", "What it does differently.")
//
// and links csdsim::csdsim_mapping_plugin. docs/mapping_policies.md describes the interface.
#pragma once

#include <cstdint>

#include "base/plugin.h"
#include "ftl/kv/kv_policy.h"
#include "ftl/policies/registry.h"
#include "ftl/policies/settings.h"

#ifndef CSDSIM_VERSION
#error "link csdsim::csdsim_mapping_plugin: the target says which version of csdsim this is"
#endif

namespace csdsim::ftl {

/// Increases with every change of KvMappingPolicy or of the types in its interface.
inline constexpr std::uint32_t kMappingInterface = 1;

using MappingPlugin = PolicyPlugin<KvMappingPolicy, PolicyContext>;

/// The function that a plugin exports.
inline constexpr const char* kMappingPluginEntry = "csdsim_mapping_plugin_v1";

}  // namespace csdsim::ftl

/// Exports `Policy`, which is constructed from a PolicyContext, from a FlashGeometry or without arguments, under the
/// name `policy_name`. Use it once per library.
#define CSDSIM_MAPPING_POLICY(Policy, policy_name, policy_summary)                                                 \
  extern "C" __attribute__((visibility("default"))) const csdsim::ftl::MappingPlugin* csdsim_mapping_plugin_v1() { \
    static constexpr csdsim::ftl::MappingPlugin plugin{                                                            \
        {csdsim::ftl::kMappingInterface, CSDSIM_VERSION, CSDSIM_PLUGIN_ABI},                                       \
        policy_name,                                                                                               \
        policy_summary,                                                                                            \
        [](const csdsim::ftl::PolicyContext& context) {                                                            \
          return csdsim::ftl::make_policy<Policy>(policy_name, context);                                           \
        }};                                                                                                        \
    return &plugin;                                                                                                \
  }
