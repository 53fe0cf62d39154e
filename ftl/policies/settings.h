// Reading a policy's own settings, and making policies that may have some.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/param.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl {

/// A policy's factory asks for each setting that it knows, then calls finish().
class SettingsReader {
 public:
  /// `policy` names it in messages.
  SettingsReader(std::string_view policy, const PolicyContext& context)
      : policy_(policy), settings_(context.settings) {}

  /// The setting's value, read as the parameters of a scenario are (units included), or `value` where it is not given.
  /// Throws UserError if the text is not a T or is out of range.
  template <class T>
  T value(std::string_view name, T value, Range<T> range) {
    detail::ValueParam<T> param(name, value, range, "", {});
    take(param);
    return value;
  }

  /// Throws UserError for a setting that the factory did not ask for.
  void finish() const;

 private:
  void take(Param& param);

  std::string policy_;
  const std::map<std::string, std::string>& settings_;
  std::vector<std::string> known_;
};

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
