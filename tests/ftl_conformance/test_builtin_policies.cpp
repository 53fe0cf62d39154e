// Every mapping policy that comes with csdsim through the conformance suite.
#include <catch2/catch.hpp>
#include <cstdio>
#include <map>
#include <string>

#include "ftl/conformance/search.h"
#include "ftl/policies/registry.h"

namespace test_builtin_policies {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::conformance;

namespace {

void try_all(const SearchOptions& search) {
  std::printf("seed %llu\n%-18s %6s %9s %6s %8s %8s %8s %8s %6s %10s\n", static_cast<unsigned long long>(search.seed),
              "policy", "cases", "sequences", "forks", "pages", "windows", "moved", "failures", "losses", "checks");
  const PolicyRegistry registry = PolicyRegistry::with_builtin();
  for (const PolicyEntry& entry : registry.entries()) {
    // Without slack it steers away from its stripes at once, not only on drives that are read for long.
    const std::map<std::string, std::string> settings = entry.name == "channel-balanced"
                                                            ? std::map<std::string, std::string>{{"slack", "0"}}
                                                            : std::map<std::string, std::string>{};
    const auto make = [&](const FlashGeometry& g) { return entry.make({g, settings}); };
    const ConformanceReport report = check_policy(make, search);
    const Coverage& c = report.coverage;
    const auto n = [](std::uint64_t v) { return static_cast<unsigned long long>(v); };
    std::printf("%-18s %6llu %9llu %6llu %8llu %8llu %8llu %8llu %6llu %10llu\n", entry.name.c_str(), n(report.cases),
                n(c.sequences), n(c.forks), n(c.pages), n(c.windows), n(c.moved_pages), n(c.program_failures),
                n(c.power_losses), n(c.checks));
    for (const PropertyReport& property : report.properties) {
      if (property.broken) UNSCOPED_INFO(to_text(entry.name, *property.broken));
    }
    CHECK(report.passed());
    CHECK(c.forks > 10);
    CHECK(c.pages > 1000);
    CHECK(c.moved_pages > 100);
    CHECK(c.program_failures > 0);
    CHECK(c.power_losses > 10);
  }
}

}  // namespace

TEST_CASE("the built-in mapping policies hold all properties over random cases") {
  try_all({.cases = 200, .seed = 20240607});
}

TEST_CASE("the built-in mapping policies hold all properties over many random cases", "[.][long]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) try_all({.cases = 1000, .seed = seed});
}

}  // namespace test_builtin_policies
