#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "host_runtime/plugin/eviction_plugin.h"
#include "serving_support.h"

namespace test_eviction_plugin {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;
using Catch::Contains;
using Catch::EndsWith;

namespace {

std::filesystem::path library(const std::string& name) {
  return std::filesystem::path(CSDSIM_TEST_PLUGINS) / ("plugin_" + name + ".so");
}

void load(const std::string& name) {
  EvictionRegistry registry = builtin_eviction_policies();
  load_eviction_plugin(library(name), registry);
}

/// The block that leaves a full tier of the blocks 1, 2, 3.
std::uint64_t first_to_leave(std::unique_ptr<EvictionPolicy> policy) {
  KvBlockManager tier({3, SimTime::max()}, std::move(policy), admission("always"));
  for (const std::uint64_t id : {1, 2, 3}) store(tier, ids({id}));
  return tier.prepare_store(ids({4}), SimTime{})->evicted.at(0).value;
}

}  // namespace

TEST_CASE("a policy out of a shared library evicts, takes settings, and outlives its registry") {
  std::unique_ptr<EvictionPolicy> policy, other;
  {
    EvictionRegistry registry = builtin_eviction_policies();
    CHECK(load_eviction_plugin(library("good"), registry) == "newest");
    CHECK(registry.items().back().doc == "The block that was stored last leaves.");
    policy = registry.at("newest")({3, {}});
    other = registry.at("newest")({3, {{"spared", "2"}}});
    CHECK_THROWS_WITH(load_eviction_plugin(library("good"), registry), Contains("'newest'"));
  }
  CHECK(policy->name() == "newest");
  CHECK(first_to_leave(std::move(policy)) == 3);
  CHECK(first_to_leave(std::move(other)) == 1);
}

TEST_CASE("what the constructor of a plugin's policy throws names the library") {
  EvictionRegistry registry("eviction policy");
  load_eviction_plugin(library("good"), registry);
  const auto make = [&](const char* name, const char* value) { registry.at("newest")({3, {{name, value}}}); };
  CHECK_THROWS_AS(make("spared", "13"), UserError);
  CHECK_THROWS_WITH(make("spared", "13"),
                    Contains("plugin_good.so: eviction policy newest could not be made: 13 blocks are unlucky"));
  CHECK_THROWS_WITH(make("spare", "1"), Contains("newest has no setting 'spare' (did you mean spared?)"));
  CHECK_THROWS_WITH(make("spared", "101"), Contains("newest: setting spared: ") && Contains("100"));
}

TEST_CASE("libraries that cannot be used say why, both versions included") {
  CHECK_THROWS_WITH(load("nowhere"), EndsWith("plugin_nowhere.so does not exist"));
  CHECK_THROWS_WITH(load("empty"), EndsWith("plugin_empty.so is no eviction plugin: it does not export "
                                            "csdsim_eviction_plugin_v1 (CSDSIM_EVICTION_POLICY does)"));
  CHECK_THROWS_WITH(load("old"), Contains("plugin_old.so was built for csdsim 0.0.9, this is csdsim " CSDSIM_VERSION));
  CHECK_THROWS_WITH(load("foreign"), Contains("was built for eviction interface 4711, this is eviction interface 1"));
  CHECK_THROWS_WITH(load("taken"), Contains("plugin_taken.so: eviction policy 'lru' is registered twice"));
  EvictionRegistry registry("eviction policy");
  load_eviction_plugin(library("two_names"), registry);
  CHECK_THROWS_WITH(registry.at("newest")({3, {}}), Contains("is registered as 'newest' and calls itself 'another'"));
}

TEST_CASE("a truncated library is refused before it is loaded") {
  const std::uintmax_t whole = std::filesystem::file_size(library("good"));
  for (const std::uintmax_t size : {std::uintmax_t{0}, std::uintmax_t{40}, whole / 4, whole / 2, whole - 1}) {
    INFO(size << " of " << whole << " bytes");
    std::filesystem::copy_file(library("good"), library("cut"), std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(library("cut"), size);
    CHECK_THROWS_AS(load("cut"), UserError);
    CHECK_THROWS_WITH(load("cut"), Contains("plugin_cut.so cannot be loaded: it is ") &&
                                       Contains(size > 0 ? "truncated" : "no ELF file"));
  }
  std::filesystem::remove(library("cut"));
}

}  // namespace test_eviction_plugin
