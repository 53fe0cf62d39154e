#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "nfc/core/onfi.h"
#include "scenario/presets.h"
#include "tests/scenario/scenario_support.h"

namespace test_presets {

using namespace csdsim;
using namespace csdsim::scenario;
using namespace csdsim::test;

TEST_CASE("every preset loads in a scenario") {
  const Presets& presets = Presets::builtin();
  CHECK(presets.kinds() == std::vector<std::string>{"device", "gpu", "host", "model", "interface"});
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
    if (name == "qwen3-32b") continue;  // its heads are wider than its residual stream
    CHECK(l.base.scenario.model.width == l.base.scenario.model.heads * l.base.scenario.model.head_dim);
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
  CHECK(capacity("xl-flash-512b") == Bytes::gib(1024));
  CHECK(capacity("apple-m1-max-1tb") == Bytes::gib(1024));
  CHECK(capacity("apple-m2-ultra-2tb") == Bytes::gib(2048));
  // 8 TiB, and the rest of a block of each plane.
  const Bytes of_six_planes = Bytes::kib(16) * (std::uint64_t{64} * 6 * 1363 * 1026);
  CHECK(of_six_planes - Bytes::gib(8192) < Bytes::kib(16) * (64 * 6 * 1026));
  CHECK(capacity("micron-9550-max-6.4tb") == of_six_planes);
  CHECK(capacity("micron-9650-max-6.4tb") == of_six_planes);
  CHECK(capacity("solidigm-d5-p5336-122.88tb") == Bytes::gib(131'072));
  CHECK(capacity("hbf-512gb") == Bytes::gib(512));
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

TEST_CASE("Llama and Qwen presets have exactly the published number of parameters") {
  const auto parameters = [](const std::string& name) {
    const std::string text = "csdsim: 1\nmodel: {preset: " + name + "}\nplatform: {gpu: {memory: 400 GiB}}\n" +
                             "workload: {kind: generation, output_tokens: 8}\n";
    return load_scenario_text(text, name, ".").base.scenario.model.shape().parameters();
  };
  // The sums over the tensors of the published checkpoints.
  CHECK(parameters("llama-2-7b") == 6'738'415'616);
  CHECK(parameters("llama-2-13b") == 13'015'864'320);
  CHECK(parameters("llama-3-8b") == 8'030'261'248);
  CHECK(parameters("llama-3-70b") == 70'553'706'496);
  CHECK(parameters("qwen-7b") == 7'721'324'544);
  CHECK(parameters("qwen2-7b") == 7'615'616'512);
}

TEST_CASE("a preset file without sources is refused") {
  Presets presets;
  CHECK_THROWS_WITH(
      presets.add("p.yaml", "kind: gpu\npresets: {x: {doc: d, values: {memory: {v: 1 GiB, src: guess, cite: c}}}}"),
      Catch::Contains("p.yaml:2:40: error: a value of a preset is {v, src, cite}"));
  CHECK_THROWS_WITH(presets.add("p.yaml", "kind: gpu\npresets: {y: {doc: d, values: {memory: 1 GiB}}}"),
                    Catch::Contains("expected a map or {v, src, cite}"));
}

TEST_CASE("unknown kinds and keys in a preset file are refused") {
  Presets presets;
  const std::string values = "values: {memory: {v: 1 GiB, src: measured, cite: c}}";
  CHECK_THROWS_WITH(presets.add("p.yaml", "kind: gup\npresets: {x: {doc: d, " + values + "}}"),
                    Catch::Contains("p.yaml:1:7: error: kind: 'gup' is no kind of presets (did you mean gpu?)"));
  CHECK_THROWS_WITH(presets.add("p.yaml", "kind: gpu\nnames: x\npresets: {y: {doc: d, " + values + "}}"),
                    Catch::Contains("p.yaml:2:1: error: unknown key 'names' in a preset file"));
  CHECK_THROWS_WITH(presets.add("p.yaml", "kind: gpu\npresets: {z: {doc: d, dco: d, " + values + "}}"),
                    Catch::Contains("unknown key 'dco' in preset z (did you mean doc?)"));
  CHECK_NOTHROW(presets.add("p.yaml", "kind: gpu\npresets: {good: {doc: d, " + values + "}}"));
}

namespace {

nfc::FlashConfig flash_of(const std::string& device, const std::vector<std::string>& sets = {}) {
  const std::string text = "csdsim: 1\nworkload: {kind: block_io}\nplatform: {device: " + device + "}\n";
  return load_scenario_text(text, "t.yaml", ".", sets).base.scenario.platform.device.flash;
}

}  // namespace

TEST_CASE("an interface stands for bandwidth, command time and setup of a channel") {
  for (const nfc::InterfaceMode& mode : nfc::interface_modes()) {
    const nfc::FlashConfig flash = flash_of("{flash: {interface: " + std::string(mode.name) + "}}");
    INFO(mode.name);
    CHECK(flash.interface == mode.name);
    CHECK(flash.channel_bandwidth == mode.channel_bandwidth());
    CHECK(flash.command_time == mode.command_time());
    CHECK(flash.data_out_setup == mode.data_out_setup);
  }
  CHECK(flash_of("{}").interface.empty());
}

TEST_CASE("an interface yields to what is given beside it or stronger, and replaces what is weaker") {
  const Bandwidth of_mode{800'000'000}, given{123'000'000};
  const std::string mode = "interface: onfi-nvddr3-800";
  nfc::FlashConfig flash = flash_of("{flash: {" + mode + ", channel_bandwidth: 123 MB/s}}");
  CHECK(flash.channel_bandwidth == given);
  CHECK(flash.command_time == SimTime::nanoseconds(200));
  // Over the bandwidth of a device preset, which is weaker.
  CHECK(flash_of("{preset: instcsd-zynq7045, flash: {" + mode + "}}").channel_bandwidth == of_mode);
  // On the command line, over the file; and the file, over nothing.
  CHECK(flash_of("{flash: {channel_bandwidth: 123 MB/s}}", {"platform.device.flash.interface=onfi-nvddr3-800"})
            .channel_bandwidth == of_mode);
  CHECK(flash_of("{flash: {" + mode + "}}", {"platform.device.flash.channel_bandwidth=123 MB/s"}).channel_bandwidth ==
        given);
  // The effective configuration loads to the same.
  const std::string text = "csdsim: 1\nworkload: {kind: block_io}\nplatform: {device: {flash: {" + mode +
                           ", channel_bandwidth: 123 MB/s}}}\n";
  const Loaded loaded = load_scenario_text(text, "t.yaml", ".");
  const std::string dumped = effective_config(loaded.base.scenario).dump();
  const Loaded again = load_scenario_text(dumped, "t.yaml", ".");
  CHECK(again.base.scenario.platform.device.flash.channel_bandwidth == given);
  CHECK(effective_config(again.base.scenario).dump() == dumped);
  // Where a value came from is where the interface was named, its source the specification.
  const config::Origin& origin = loaded.base.origins.at("platform.device.flash.command_time");
  CHECK(origin.text() == loaded.base.origins.at("platform.device.flash.interface").text());
  CHECK(origin.note == "datasheet: ONFI 4.0, NV-DDR3 mode 10");
  CHECK_THROWS_WITH(flash_of("{flash: {interface: onfi-nvddr3-801}}"),
                    Catch::Contains("did you mean onfi-nvddr3-800?"));
}

TEST_CASE("a scenario brings presets of its own, which the effective configuration names") {
  const auto directory = std::filesystem::temp_directory_path() / "csdsim_own_presets";
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "gpu.yaml") << "kind: gpu\npresets:\n  mine:\n    doc: My GPU.\n    values:\n"
                                           "      fp16_rate: {v: 7 TFLOPS, src: measured, cite: here}\n";
  std::ofstream(directory / "again.yaml") << "kind: gpu\npresets:\n  h200:\n    doc: Another.\n    values:\n"
                                             "      fp16_rate: {v: 7 TFLOPS, src: measured, cite: here}\n";
  const auto load = [&](const std::string& presets) {
    return load_scenario_text("csdsim: 1\npresets: " + presets +
                                  "\nworkload: {kind: block_io}\n"
                                  "platform: {gpu: {preset: mine}}\n",
                              "t.yaml", directory);
  };
  for (const char* const form : {"gpu.yaml", "[gpu.yaml]"}) {
    const Loaded loaded = load(form);
    CHECK(loaded.base.scenario.platform.gpu.fp16_rate.flop_per_second == 7'000'000'000'000u);
    CHECK(loaded.base.origins.at("platform.gpu.fp16_rate").note == "measured: here");
    const std::string dumped = effective_config(loaded.base.scenario).dump();
    CHECK(effective_config(load_scenario_text(dumped, "t.yaml", "/").base.scenario).dump() == dumped);
  }
  CHECK_THROWS_WITH(load("[gpu.yaml, again.yaml]"), Catch::Contains("h200 exists already"));
  CHECK_THROWS_WITH(load("missing.yaml"), Catch::Contains("t.yaml:2:") && Catch::Contains("missing.yaml"));
  CHECK_THROWS_WITH(load("[]"), Catch::Contains("expected a file"));
  std::filesystem::remove_all(directory);
}

TEST_CASE("measured GPU times leave no part to what describes the model of a GPU") {
  const auto load = [](const std::string& gpu) {
    return load_scenario_text(
        "csdsim: 1\nmodel: {preset: opt-1.3b}\nsystem: {kind: instinfer-dense}\n"
        "workload: {kind: generation, batch: 1, input_tokens: 64, output_tokens: 4}\n"
        "platform: {gpu: " +
            gpu + "}\n",
        "t.yaml", ".");
  };
  for (const char* const unused :
       {"fp16_rate: 1 TFLOPS", "memory_bandwidth: 1 GB/s", "kernel_launch: 1 us", "efficiency: {gemv: 0.5}"}) {
    CHECK_THROWS_WITH(load(std::string("{timing: measured, ") + unused + "}"), Catch::Contains("is not used"));
  }
  CHECK_THROWS_WITH(load("{times: result.json}"), Catch::Contains("platform.gpu.times is not used"));
  CHECK_THROWS_WITH(load("{timing: measured, times: no-such-result.json}"), Catch::Contains("no-such-result.json"));
  const Loaded measured = load("{preset: h200, timing: measured}");
  const std::string dumped = effective_config(measured.base.scenario).dump();
  CHECK(effective_config(load_scenario_text(dumped, "t.yaml", ".").base.scenario).dump() == dumped);
}

}  // namespace test_presets
