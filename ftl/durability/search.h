// Searches for a history after which a power loss takes more than it may, and makes it small.
#pragma once

#include <cstdint>
#include <optional>

#include "ftl/durability/case.h"
#include "ftl/durability/explore.h"

namespace csdsim::ftl::durability {

struct SearchOptions {
  std::uint64_t cuts = 20'000;  ///< at least so many, in random histories
  std::uint64_t seed = 1;
  std::optional<std::uint32_t> units_per_program = {};  ///< unset: 1, 3 and others
  std::optional<bool> capacitors = {};                  ///< unset: with and without
};

using Counterexample = CounterexampleOf<Case>;

struct Report {
  std::uint64_t cases = 0;
  CutCoverage coverage;
  std::optional<Counterexample> broken;
};

/// Random histories on drives of many kinds, with collection, wear levelling and failing media. Stops at the first
/// violation. Equal options give equal reports.
Report search_randomly(const SearchOptions& options);

/// All cuts of all histories of up to `commands` commands {write, FUA write, trim, flush} at two addresses, with the
/// completions in every order that flash allows, on small drives: new ones, and ones that collect.
Report search_exhaustively(std::uint32_t commands, const SearchOptions& options);

/// Removes what the violation does not need.
Counterexample shrink(const Case& c);

}  // namespace csdsim::ftl::durability
