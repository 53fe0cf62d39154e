// The eviction and admission policies by name.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>

#include "base/registry.h"
#include "base/settings_reader.h"
#include "host_runtime/core/serving/admission/admission_policy.h"
#include "host_runtime/core/serving/eviction/eviction_policy.h"

namespace csdsim::host {

/// A factory throws UserError for settings that the policy does not have.
template <class Policy>
using CachePolicyRegistry = Registry<std::function<std::unique_ptr<Policy>(const CachePolicyContext&)>>;
using EvictionRegistry = CachePolicyRegistry<EvictionPolicy>;
using AdmissionRegistry = CachePolicyRegistry<AdmissionPolicy>;

/// Hold the policies that csdsim comes with.
EvictionRegistry builtin_eviction_policies();
AdmissionRegistry builtin_admission_policies();

/// Makes a Policy from its context or without arguments; then it has no settings, and any given is an error.
template <class Base, class Policy>
std::unique_ptr<Base> make_cache_policy(std::string_view name, const CachePolicyContext& context) {
  if constexpr (std::is_constructible_v<Policy, const CachePolicyContext&>) {
    return std::make_unique<Policy>(context);
  } else {
    SettingsReader(name, context.settings).finish();
    return std::make_unique<Policy>();
  }
}

}  // namespace csdsim::host
