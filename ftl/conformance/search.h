// Searches for a case that breaks a property of a mapping policy, and makes it small.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ftl/conformance/case.h"

namespace csdsim::ftl::conformance {

struct SearchOptions {
  std::uint32_t cases = 100;  ///< random cases; they grow longer from the first to the last
  std::uint64_t seed = 1;
  std::uint32_t most_operations = 200;
};

/// A case that breaks a property and from which nothing more can be removed.
struct Counterexample {
  Case smallest;
  Violation violation;
  std::vector<std::string> history;
};

struct PropertyReport {
  Property property = Property::interface;
  std::optional<Counterexample> broken;
};

struct ConformanceReport {
  std::vector<PropertyReport> properties;  ///< all, in order
  std::uint64_t cases = 0;
  Coverage coverage;
  /// Whether no property is broken, and the policy accepted sequences and wrote groups of tokens.
  bool passed() const;
};

/// Runs random cases (RapidCheck) on the policy; a property that is broken is reported with a smallest counterexample
/// and left out of the rest of the search, so that one mistake does not hide another. Equal options give equal reports.
ConformanceReport check_policy(const PolicyMaker& policy, const SearchOptions& search, const CaseOptions& options = {});

/// The counterexample as text: the drive, what happened, what does not hold.
std::string to_text(std::string_view policy, const Counterexample& counterexample);

}  // namespace csdsim::ftl::conformance
