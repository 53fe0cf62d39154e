// The mapping policies by name: those that csdsim comes with, and those that a plugin adds.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "ftl/core/kv_policy.h"

namespace csdsim::ftl {

/// What a policy is made from.
struct PolicyContext {
  FlashGeometry geometry;
  /// The policy's own settings, by name, as written in the scenario. A factory throws UserError for names and values
  /// that it does not know.
  std::map<std::string, std::string> settings;
};

using PolicyFactory = std::function<std::unique_ptr<KvMappingPolicy>(const PolicyContext&)>;

struct PolicyEntry {
  std::string name;
  std::string summary;  ///< one line: what it does differently
  PolicyFactory make;
};

class PolicyRegistry {
 public:
  /// With the policies that csdsim comes with.
  static PolicyRegistry with_builtin();

  /// Throws UserError if the name is taken, or is not lower-case words joined by hyphens.
  void add(PolicyEntry entry);
  /// Throws UserError, listing what there is, if there is no such policy; and what the policy's factory throws.
  std::unique_ptr<KvMappingPolicy> make(std::string_view name, const PolicyContext& context) const;
  const std::vector<PolicyEntry>& entries() const { return entries_; }

 private:
  std::vector<PolicyEntry> entries_;
};

}  // namespace csdsim::ftl
