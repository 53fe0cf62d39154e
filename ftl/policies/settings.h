// Making policies that may have settings of their own.
#pragma once

#include <memory>
#include <string_view>
#include <type_traits>

#include "base/settings_reader.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl {

using csdsim::SettingsReader;

/// Makes a Policy from its context or, if its constructor takes no context, from the geometry or without arguments;
/// then it has no settings and any given is an error.
template <class Policy>
std::unique_ptr<KvMappingPolicy> make_policy(std::string_view name, const PolicyContext& context) {
  if constexpr (std::is_constructible_v<Policy, const PolicyContext&>) {
    return std::make_unique<Policy>(context);
  } else {
    SettingsReader(name, context).finish();
    if constexpr (std::is_constructible_v<Policy, const FlashGeometry&>) {
      return std::make_unique<Policy>(context.geometry);
    } else {
      return std::make_unique<Policy>();
    }
  }
}

}  // namespace csdsim::ftl
