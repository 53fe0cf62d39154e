#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "scenario/load_point.h"
#include "tests/scenario/scenario_support.h"

namespace test_sweep {

using namespace csdsim;
using namespace csdsim::scenario;
using namespace csdsim::test;

namespace {
const std::string kBase =
    "csdsim: 1\nmodel: {preset: opt-13b}\nplatform: {device: {preset: instcsd-zynq7045}}\n"
    "system: {kind: instinfer-sparf, ratio: 1/4}\nworkload: {kind: generation, output_tokens: 8}\n";

Loaded load(const std::string& text, const std::vector<std::string>& sets = {}) {
  return load_scenario_text(kBase + text, "s.yaml", ".", sets);
}
}  // namespace

TEST_CASE("points come in a fixed order, the last axis fastest") {
  const Loaded l = load(
      "sweep: {axes: {platform.device.flash.channel_bandwidth: [0.7 GB/s, 1.4 GB/s], platform.device.flash.channels: "
      "[4, 8]}}\n");
  REQUIRE(l.points.size() == 4);
  CHECK(l.points[0].name == "channel_bandwidth=0.7GBps,channels=4");
  CHECK(l.points[1].name == "channel_bandwidth=0.7GBps,channels=8");
  CHECK(l.points[2].name == "channel_bandwidth=1.4GBps,channels=4");
  CHECK(l.points[3].name == "channel_bandwidth=1.4GBps,channels=8");
  CHECK(l.points[1].axes[0] ==
        std::pair<std::string, std::string>{"platform.device.flash.channel_bandwidth", "0.7 GB/s"});
  const nfc::FlashConfig& f = l.points[1].scenario.platform.device.flash;
  CHECK(f.channel_bandwidth == Bandwidth{700'000'000});
  CHECK(f.geometry.channels == 8);
  CHECK(l.base.scenario.platform.device.flash.geometry.channels == 8);
}

TEST_CASE("an axis may change a kind, or set a whole map") {
  const Loaded kinds = load("sweep: {axes: {system.kind: [instinfer-dense, instinfer-sparf]}}\n");
  REQUIRE(kinds.points.size() == 2);
  CHECK(kinds.points[0].scenario.system.kind() == "instinfer-dense");
  CHECK(system_as<InstinferSparf>(kinds.points[1].scenario).sparf.ratio == Ratio::of(1, 4));
  const Loaded maps =
      load("sweep: {axes: {system: [{kind: instinfer-dense}, {kind: instinfer-sparf, ratio: 1/16}]}}\n");
  REQUIRE(maps.points.size() == 2);
  CHECK(maps.points[0].name == "system=instinfer-dense");
  CHECK(system_as<InstinferSparf>(maps.points[1].scenario).sparf.ratio == Ratio::of(1, 16));
  const Loaded same = load(
      "sweep: {axes: {system: [{ratio: 1/8}, {ratio: 1/16}], platform.device.preset: [instcsd-zynq7045, "
      "instcsd-prototype]}}\n");
  REQUIRE(same.points.size() == 4);
  std::set<std::string> names;
  for (const auto& p : same.points) names.insert(p.name);
  CHECK(names.size() == 4);
  CHECK(same.points[1].scenario.platform.device.flash.geometry.channels == 4);
}

TEST_CASE("a run reads and checks its own point only") {
  const auto file = std::filesystem::temp_directory_path() / "csdsim_test_own_point.yaml";
  std::ofstream(file) << kBase << "sweep: {axes: {platform.device.flash.channels: [4, 100000]}}\n";
  const auto load_one = [&](std::optional<std::size_t> point, const std::vector<std::string>& sets = {}) {
    return load_point(file, sets, experiment::builtin_registries(), point);
  };
  CHECK_THROWS_WITH(load_scenario(file), Catch::Contains("channels"));
  CHECK(load_one({}).points == 2);
  CHECK(load_one({}).resolved.scenario.platform.device.flash.geometry.channels == 8);
  CHECK(load_one(0).resolved.scenario.platform.device.flash.geometry.channels == 4);
  CHECK(load_one(0).resolved.origins.at("platform.device.flash.channels").text() == file.string() + ":6:49");
  CHECK_THROWS_WITH(load_one(1), Catch::Contains("platform.device.flash.channels"));
  CHECK_THROWS_WITH(load_one(2), Catch::Contains("--point 2") && Catch::Contains("has 2 points"));
  CHECK_THROWS_WITH(load_one({}, {"workload.batch=0"}), Catch::Contains("workload.batch"));
  CHECK_THROWS_WITH(load_one({}, {"sweep.axes.no.such=[1]"}), Catch::Contains("no.such"));
  std::filesystem::remove(file);
}

TEST_CASE("axes with the same last key are told apart") {
  const Loaded l = load("sweep: {axes: {platform.device.link.lanes: [2, 4], platform.gpu.link.lanes: [8, 16]}}\n");
  CHECK(l.points[0].name == "device.link.lanes=2,gpu.link.lanes=8");
}

TEST_CASE("an axis can be set on the command line, and counts more than a setting of its path") {
  const Loaded l = load("", {"sweep.axes.workload.batch=[1, 2, 4]", "workload.batch=7"});
  REQUIRE(l.points.size() == 3);
  CHECK(l.base.scenario.workload.kind() == "generation");
  CHECK(workload_as<GenerationWorkload>(l.base.scenario).batch == 7);
  CHECK(workload_as<GenerationWorkload>(l.points[2].scenario).batch == 4);
  REQUIRE(l.points[2].notes.size() == 1);
  CHECK(l.points[2].notes[0] == "--set workload.batch=7: note: workload.batch is swept: the axis counts");
}

TEST_CASE("a point whose values do not fit together has the reason, located at its value, and the others run") {
  const std::string reason =
      "s.yaml:6:44: error: workload: 4128 tokens (128 in, 4000 out) exceed the 2048 positions of the model: give "
      "model.max_positions";
  const Loaded l = load("sweep: {axes: {workload.output_tokens: [8, 4000]}}\n");
  REQUIRE(l.points.size() == 2);
  CHECK(l.points[0].refusal.empty());
  CHECK(l.points[1].refusal == reason);
  CHECK(l.refused() == 1);
  CHECK(all_notes(l) == l.base.notes);
  // The KV cache does not fit the drive.
  const Loaded kv = load("sweep: {axes: {workload.batch: [1, 65536]}}\n");
  CHECK(kv.points[0].refusal.empty());
  CHECK_THAT(kv.points[1].refusal, Catch::Contains("s.yaml:6:36: error: the KV cache of 65536 sequences"));
}

TEST_CASE("a sweep of which no point fits, or with a mistake in its base, is an error of the file") {
  CHECK_THROWS_WITH(load("sweep: {axes: {workload.output_tokens: [3000, 4000]}}\n"),
                    Catch::StartsWith("s.yaml:6:41: error: workload: 3128 tokens") &&
                        Catch::Contains("s.yaml:6:47: error: workload: 4128 tokens"));
  CHECK_THROWS_WITH(load("sweep: {axes: {workload.batch: [1, 2]}}\n", {"workload.output_tokens=4000"}),
                    Catch::Contains("4128 tokens"));
}

TEST_CASE("a value of an axis that cannot be read is an error of the file") {
  CHECK_THROWS_WITH(load("sweep: {axes: {workload.batch: [1, two]}}\n"), Catch::Contains("s.yaml:6:36: error"));
  CHECK_THROWS_WITH(load("sweep: {axes: {workload.batch: [1, 0]}}\n"), Catch::Contains("0 is out of range"));
  CHECK_THROWS_WITH(load("sweep: {axes: {workload.batch: [1, 2], workload: [{batch: 3}]}}\n"),
                    Catch::Contains("workload.batch lies inside workload, which is an axis, too"));
  CHECK_THROWS_WITH(load("sweep: {axis: {workload.batch: [1, 2]}}\n"), Catch::Contains("unknown key 'axis' in sweep"));
  CHECK_THROWS_WITH(load("sweep: 3\n"), Catch::Contains("sweep: expected axes"));
}

TEST_CASE("a sweep has a bounded number of points") {
  std::string values;
  for (int i = 1; i <= 101; ++i) values += std::to_string(i) + ", ";
  CHECK_THROWS_WITH(load("sweep: {axes: {workload.batch: [" + values + "], seed: [" + values + "]}}\n"),
                    Catch::Contains("more than 10000 points"));
}

TEST_CASE("the channels scenario has its twelve points") {
  const Loaded l = load_scenario(std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios/channels.yaml");
  CHECK(l.points.size() == 12);
  CHECK(l.points.back().name == "kind=instinfer-sparf,channel_bandwidth=1.4GBps,channels=16");
}

}  // namespace test_sweep
