#include <catch2/catch.hpp>

#include "policy_support.h"

namespace test_registry {

using namespace csdsim;
using namespace csdsim::ftl;
using Catch::Contains;

namespace {

const PolicyContext kContext{{}, {}};

std::unique_ptr<KvMappingPolicy> none(const PolicyContext&) { return nullptr; }

}  // namespace

TEST_CASE("what csdsim comes with, by name, with a summary each") {
  const PolicyRegistry registry = PolicyRegistry::with_builtin();
  std::vector<std::string> names;
  for (const PolicyEntry& entry : registry.entries()) {
    names.push_back(entry.name);
    CHECK(entry.summary.ends_with("."));
    CHECK(registry.make(entry.name, kContext)->name() == entry.name);
  }
  CHECK(names == std::vector<std::string>{"instinfer", "page-l2p", "token-striped", "head-per-channel",
                                          "channel-balanced", "sequence-block", "paired"});
}

TEST_CASE("unknown, taken and impossible names") {
  PolicyRegistry registry = PolicyRegistry::with_builtin();
  CHECK_THROWS_WITH(
      registry.make("instifer", kContext),
      Contains("unknown mapping policy 'instifer' (did you mean instinfer?); exists: instinfer, page-l2p"));
  CHECK_THROWS_WITH(registry.add({"paired", "Another.", none}),
                    Contains("there is a mapping policy 'paired' already: K and V"));
  for (const char* const bad : {"", "-x", "x-", "a--b", "Mine", "my policy", "4k", "a/b"}) {
    CHECK_THROWS_WITH(registry.add({bad, "", none}), Contains("names are lower-case words joined by hyphens"));
  }
  registry.add({"my-own-4k", "Mine.", none});
  CHECK(registry.entries().back().name == "my-own-4k");
}

TEST_CASE("settings are read with their ranges, and unknown ones refused") {
  const PolicyRegistry registry = PolicyRegistry::with_builtin();
  const auto make = [&](std::string_view policy, const char* name, const char* value) {
    registry.make(policy, {{}, {{name, value}}});
  };
  CHECK_NOTHROW(make("channel-balanced", "slack", "0.25"));
  CHECK_THROWS_WITH(make("channel-balanced", "slack", "11"),
                    Contains("channel-balanced: setting slack: ") && Contains("10"));
  CHECK_THROWS_WITH(make("channel-balanced", "slack", "much"), Contains("channel-balanced: setting slack: "));
  CHECK_THROWS_WITH(make("channel-balanced", "slak", "1"),
                    Contains("channel-balanced has no setting 'slak' (did you mean slack?); exists: slack"));
  CHECK_THROWS_WITH(make("instinfer", "slack", "1"), Contains("instinfer has no setting 'slack'; exists: none"));
}

}  // namespace test_registry
