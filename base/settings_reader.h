// Reading the settings of a policy, which are texts by name.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/param.h"

namespace csdsim {

/// A policy's factory asks for each setting that it knows, then calls finish().
class SettingsReader {
 public:
  using Settings = std::map<std::string, std::string>;

  /// `policy` names it in messages. The settings must outlive the reader.
  SettingsReader(std::string_view policy, const Settings& settings) : policy_(policy), settings_(settings) {}
  /// Those of a context from which a policy is made.
  template <class Context>
  requires requires(const Context& context) { context.settings; }
  SettingsReader(std::string_view policy, const Context& context) : SettingsReader(policy, context.settings) {}

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
  const Settings& settings_;
  std::vector<std::string> known_;
};

}  // namespace csdsim
