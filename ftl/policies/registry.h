// The mapping policies by name: the built-in ones and those from plugins.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "ftl/kv/kv_policy.h"

namespace csdsim::ftl {

/// The arguments from which a policy is made.
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
  /// Holds the built-in policies.
  static PolicyRegistry with_builtin();

  /// Throws UserError if the name is taken, or is not lower-case words joined by hyphens.
  void add(PolicyEntry entry);
  /// Throws UserError, listing the known policies, if there is none of that name; passes on exceptions of the policy's
  /// factory.
  std::unique_ptr<KvMappingPolicy> make(std::string_view name, const PolicyContext& context) const;
  const std::vector<PolicyEntry>& entries() const { return entries_; }

 private:
  std::vector<PolicyEntry> entries_;
};

}  // namespace csdsim::ftl
