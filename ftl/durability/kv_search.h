// Searches for a history of a KV namespace after which a power loss takes more than it may, and makes it small.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ftl/durability/explore.h"
#include "ftl/durability/kv_case.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl::durability {

struct KvSearchOptions {
  std::uint64_t cuts = 20'000;  ///< at least so many, in random histories
  std::uint64_t seed = 1;
};

using KvCounterexample = CounterexampleOf<KvCase>;

struct KvReport {
  std::uint64_t cases = 0;
  KvCoverage coverage;
  std::optional<KvCounterexample> broken;
};

/// Random histories on small drives with every policy of `policies` and every tail policy: collection, forks, readers,
/// rows of few bits, failing media, capacitors that do not save all. Stops at the first violation. Equal options give
/// equal reports.
KvReport search_randomly(const PolicyRegistry& policies, const KvSearchOptions& options);

/// All cuts of all histories of up to `commands` commands {append of a token, append of a group, free, fork} over two
/// sequences, with every policy and tail policy. At each command and each cut every set of operations is complete that
/// flash may have completed; what completes between two commands does so in one of its orders.
KvReport search_exhaustively(const PolicyRegistry& policies, std::uint32_t commands);

/// Removes what the violation does not need.
KvCounterexample shrink(const KvCase& c);

}  // namespace csdsim::ftl::durability
