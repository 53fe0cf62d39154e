#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "ftl/plugin/load_plugin.h"
#include "policy_support.h"

namespace test_plugin {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;
using Catch::Contains;
using Catch::EndsWith;

namespace {

std::filesystem::path library(const std::string& name) {
  return std::filesystem::path(CSDSIM_TEST_PLUGINS) / ("plugin_" + name + ".so");
}

void load(const std::string& name) {
  PolicyRegistry registry = PolicyRegistry::with_builtin();
  load_mapping_plugin(library(name), registry);
}

const FlashGeometry kFlash{4, 4, 2, 64, 64, Bytes::kib(4)};

}  // namespace

TEST_CASE("a policy out of a shared library places pages, takes settings, and outlives its registry") {
  std::unique_ptr<KvMappingPolicy> policy, other;
  {
    PolicyRegistry registry = PolicyRegistry::with_builtin();
    CHECK(load_mapping_plugin(library("good"), registry) == "one-plane");
    CHECK(registry.entries().back().summary == "All pages in one plane.");
    policy = registry.make("one-plane", {kFlash, {}});
    other = registry.make("one-plane", {kFlash, {{"plane", "5"}}});
  }
  const KvShape shape{1, 1, 64, 1024};
  const KvLayout layout = policy->layout(shape, kFlash.page_size, {});
  CHECK(layout.group_tokens == 32);
  const KvSequenceInfo info{SequenceId{0}, shape, layout};
  OpenFlash flash(kFlash);
  CHECK(policy->name() == "one-plane");
  CHECK(kFlash.plane_of(policy->place({}, info, flash)) == PlaneId{3});
  CHECK(kFlash.plane_of(other->place({}, info, flash)) == PlaneId{5});

  KvPageId page;
  page.group = 99;
  CHECK_THROWS_AS(policy->place(page, info, flash), PolicyError);  // thrown there, caught here
  CHECK_THROWS_WITH(policy->layout({1, 1, 4096, 1}, kFlash.page_size, {}), Contains("smaller than a token row"));
}

TEST_CASE("what the constructor of a plugin's policy throws names the library") {
  PolicyRegistry registry;
  load_mapping_plugin(library("good"), registry);
  const auto make = [&](const char* name, const char* value) { registry.make("one-plane", {kFlash, {{name, value}}}); };
  CHECK_THROWS_AS(make("plane", "13"), UserError);
  CHECK_THROWS_WITH(make("plane", "13"),
                    Contains("plugin_good.so: mapping policy one-plane could not be made: plane 13 is unlucky"));
  CHECK_THROWS_WITH(make("plan", "1"), Contains("one-plane has no setting 'plan' (did you mean plane?)"));
  CHECK_THROWS_WITH(make("plane", "101"), Contains("one-plane: setting plane: ") && Contains("100"));
}

TEST_CASE("libraries that cannot be used say why, both versions included") {
  CHECK_THROWS_WITH(load("nowhere"), EndsWith("plugin_nowhere.so does not exist"));
  CHECK_THROWS_WITH(load("empty"), EndsWith("plugin_empty.so is no mapping plugin: it does not export "
                                            "csdsim_mapping_plugin_v1 (CSDSIM_MAPPING_POLICY does)"));
  CHECK_THROWS_WITH(load("old"), Contains("plugin_old.so was built for csdsim 0.0.9, this is csdsim " CSDSIM_VERSION));
  CHECK_THROWS_WITH(load("foreign"), Contains("was built for mapping interface 4711, this is mapping interface 1"));
  CHECK_THROWS_WITH(load("taken"), Contains("plugin_taken.so: there is a mapping policy 'paired' already"));
  CHECK_THROWS_WITH(load("unnamed"), Contains("plugin_unnamed.so: a mapping policy is called 'One Plane'"));

  const std::filesystem::path text = std::filesystem::path(CSDSIM_TEST_PLUGINS) / "plugin_text.so";
  std::ofstream(text) << "no library\n";
  CHECK_THROWS_WITH(load("text"), Contains("plugin_text.so cannot be loaded: "));
  std::filesystem::remove(text);

  PolicyRegistry registry;
  load_mapping_plugin(library("two_names"), registry);
  CHECK_THROWS_WITH(registry.make("one-plane", {kFlash, {}}),
                    Contains("is registered as 'one-plane' and calls itself 'another'"));
}

TEST_CASE("a library may be loaded again, into another registry") {
  for (int i = 0; i < 3; ++i) {
    PolicyRegistry registry;
    CHECK(load_mapping_plugin(library("good"), registry) == "one-plane");
    CHECK_THROWS_WITH(load_mapping_plugin(library("good"), registry), Contains("'one-plane' already"));
  }
}

}  // namespace test_plugin
