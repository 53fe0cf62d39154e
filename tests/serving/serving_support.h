// Set-up that tests of KV blocks share.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "host_runtime/core/serving/kv_block_manager.h"
#include "host_runtime/core/serving/policy_registry.h"

namespace csdsim::host::test {

inline std::vector<KvBlockId> ids(std::initializer_list<std::uint64_t> values) {
  std::vector<KvBlockId> out;
  for (const std::uint64_t value : values) out.push_back({value});
  return out;
}

inline std::unique_ptr<EvictionPolicy> eviction(std::string_view name, std::optional<std::uint64_t> capacity) {
  return builtin_eviction_policies().at(name)({capacity, {}});
}

inline std::unique_ptr<AdmissionPolicy> admission(std::string_view name, std::optional<std::uint64_t> capacity = {},
                                                  std::map<std::string, std::string> settings = {}) {
  return builtin_admission_policies().at(name)({capacity, std::move(settings)});
}

inline KvBlockManager manager(std::optional<std::uint64_t> capacity, std::string_view policy = "lru",
                              SimTime deadline = SimTime::max()) {
  return KvBlockManager({capacity, deadline}, eviction(policy, capacity), admission("always"));
}

/// A store that succeeds at once. False if it is refused.
inline bool store(KvBlockManager& tier, const std::vector<KvBlockId>& blocks) {
  const auto store = tier.prepare_store(blocks, SimTime{});
  if (store && !store->stored.empty()) tier.complete_store(store->job, true);
  return store.has_value();
}

}  // namespace csdsim::host::test
