#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/config/dump.h"
#include "experiment/memory/kv_cache.h"
#include "scenario/check.h"
#include "tests/scenario/scenario_support.h"
#include "tests/support/temporary_directory.h"

namespace test_scenario_load {

using namespace csdsim;
using namespace csdsim::scenario;
using namespace csdsim::test;

namespace {

const std::filesystem::path kRoot = CSDSIM_SOURCE_DIR;

Resolved load(const std::string& text, const std::vector<std::string>& sets = {}) {
  return load_scenario_text(text, "s.yaml", kRoot / "scenarios", sets).base;
}

// The example of the contract.
constexpr const char* kContract = R"(csdsim: 1
name: instcsd-opt13b
seed: 1
model: {preset: opt-13b}                       # or {path: DIR}
platform:
  gpu: {preset: a6000}                         # timing: modelled | measured
  host: {preset: xeon-5320, io_overhead: 0 ns}
  device:
    preset: instcsd-zynq7045
    count: 1
    fidelity: fast
    flash: {channels: 8, dies_per_channel: 8, planes_per_die: 4, blocks_per_plane: 4096, pages_per_block: 256,
            page_size: 4 KiB, read_latency: 50 us, program_latency: 600 us, erase_latency: 3 ms,
            channel_bandwidth: 1.4 GB/s, command_time: 290 ns, data_out_setup: 30 ns,
            bus_arbitration: command_first, ecc_latency: 0 ns, page_buffers: unlimited, filter_location: nfc}
    engine: {clock: 285 MHz, kernels: 2, macs_per_cycle: 128, jobs_in_flight: 16, buffer: 1 MiB}
    nvme: {queues: 4, queue_depth: 1024, mdts: 2 MiB, granularity: layer_mini_batch, transfer: p2p}
    link: {generation: 3, lanes: 4}            # or {bandwidth: 6.459 GB/s}
    dram: {capacity: 8 GiB}
    write_buffer: {capacity: 0 B}              # 0 B: every write reaches flash before it completes
    ftl: {mapping: {kind: instinfer, embedding_group: auto, tail: token_index}, over_provisioning: 0.07, lookup_time: 0 ns,
          lookup_cores: 1, firmware: {append: 0 ns, flush: 0 ns, transpose: 0 ns, collect: 0 ns, fetch: 0 ns},
          stripe_order: [channel, die, plane]}
system: {kind: instinfer-sparf, ratio: 1/8}    # instinfer-dense; method and system that disagree are an error
workload: {kind: generation, batch: 64, input_tokens: 1024, output_tokens: 1024}     # or prompts: FILE
simulation: {data: timing, selection: {kind: clustered, token_page_fraction: 0.25}, sampling: {layers: 2, steps: 8}}
)";
constexpr const char* kSweep =
    "sweep: {axes: {platform.device.flash.channels: [4, 8, 16], platform.device.flash.channel_bandwidth: [0.7 GB/s, "
    "1.4 "
    "GB/s]}}\n";

/// Equality by what the dump shows, which is every parameter.
nlohmann::ordered_json all(const Scenario& s) { return config::JsonDump::of(s); }

}  // namespace

constexpr const char* kDeepFlash = R"(csdsim: 1
platform:
  device:
    flash:
      page_types: {read_latency: [40 us, 60 us, 80 us], program_latency: [300 us, 500 us, 1 ms]}
      plane_mode: multi_plane
      cache: {program: false, busy_time: 2 us}
      suspend: {kinds: erase, latency: 50 us, resume_latency: 1 us, max: 3}
      class_priority: [attend, gc]
      status_time: 100 ns
      packages: {dies: 4, select_time: 30 ns}
      ecc_bandwidth: 1.2 GB/s
      page_buffers: 8
workload: {kind: block_io}
)";

TEST_CASE("the contract's example is read to the values it states") {
  const Resolved r = load(kContract);
  CHECK(r.notes.empty());
  const Scenario& s = r.scenario;
  CHECK(s.name == "instcsd-opt13b");
  const nfc::FlashConfig& f = s.platform.device.flash;
  CHECK(f.geometry.capacity() == Bytes::gib(1024));
  CHECK(f.read_latency == SimTime::microseconds(50));
  CHECK(f.channel_bandwidth == Bandwidth{1'400'000'000});
  CHECK(f.command_time == SimTime::nanoseconds(290));
  CHECK(s.platform.device.engine.clock == Frequency{285'000'000});
  CHECK(s.platform.device.link.raw_bandwidth() == Bandwidth{3'938'461'538});
  CHECK(s.platform.gpu.fp16_rate == ComputeRate{155'000'000'000'000});
  CHECK(s.platform.gpu.link.raw_bandwidth().bytes_per_second == 31'507'692'307);
  CHECK(s.model.layers == 40);
  CHECK(s.model.head_dim == 128);
  CHECK(system_as<InstinferSparf>(s).sparf.ratio == Ratio::of(1, 8));
  CHECK(workload_as<GenerationWorkload>(s).batch == 64);
  CHECK(s.simulation.sampling->steps == 8);
  CHECK(std::get<ClusteredSelectionConfig>(s.simulation.selection).token_page_fraction == Ratio::of(1, 4));
  // OPT-13B: 24 GiB of weights (InstInfer III-A), and 1.5 x 819,200 B a token of flushed KV.
  CHECK(s.model.weight_bytes().value / (1 << 30) == 23);
  const auto policy = make_policy(s.platform.device.ftl.mapping, f.geometry);
  CHECK(experiment::kv_cache_pages(s, experiment::kv_layout(s, *policy)) * 4096 == 819'200ull * 3 / 2 * 2048 * 64);
}

TEST_CASE("the share of touched token pages and the selected tokens in each exclude each other") {
  const std::string per_page = "simulation.selection.selected_per_page=8";
  CHECK_THROWS_WITH(load(kContract, {per_page, "simulation.selection.token_page_fraction=0.5"}),
                    Catch::Contains("simulation.selection.selected_per_page=8: error: "
                                    "simulation.selection.selected_per_page and "
                                    "simulation.selection.token_page_fraction exclude each other"));
  // The stronger layer counts, and a result has only what counts.
  const auto selection = [](const Resolved& r) { return effective_config(r.scenario)["simulation"]["selection"]; };
  CHECK(selection(load(kContract, {per_page})) ==
        nlohmann::ordered_json{{"kind", "clustered"}, {"selected_per_page", "8"}});
  CHECK(selection(load(kContract)) == nlohmann::ordered_json{{"kind", "clustered"}, {"token_page_fraction", "0.25"}});
}

TEST_CASE("the contract's defaults are the defaults of the structs") {
  const Scenario s = load(kContract).scenario;
  Scenario plain = empty_scenario();
  CHECK(config::JsonDump::of(s.platform.device.flash) == config::JsonDump::of(plain.platform.device.flash));
  CHECK(config::JsonDump::of(s.platform.device.engine) == config::JsonDump::of(plain.platform.device.engine));
  CHECK(config::JsonDump::of(s.platform.device.nvme) == config::JsonDump::of(plain.platform.device.nvme));
  CHECK(config::JsonDump::of(s.platform.device.ftl) == config::JsonDump::of(plain.platform.device.ftl));
  plain.platform.gpu.preset = "a6000";
  CHECK(config::JsonDump::of(s.platform.gpu) == config::JsonDump::of(plain.platform.gpu));
}

TEST_CASE("the effective configuration reads back to the same scenario") {
  for (const char* file : {"block_read.yaml", "quickstart.yaml", "channels.yaml"}) {
    INFO(file);
    const Scenario first = load_scenario(kRoot / "scenarios" / file).base.scenario;
    const std::string text = effective_config(first).dump(2);
    INFO(text);
    const Resolved second = load(text);
    CHECK(second.notes.empty());
    CHECK(all(second.scenario) == all(first));
    CHECK(effective_config(second.scenario).dump() == effective_config(first).dump());
  }
  constexpr const char* kSearched = R"(csdsim: 1
model: {preset: opt-1.3b}
system: {kind: flexgen-ssd}
workload: {kind: generation, batch: 2, input_tokens: 128, output_tokens: 8}
)";
  for (const char* text : {kContract, kDeepFlash, kSearched}) {
    const Scenario first = load(text).scenario;
    CHECK(all(load(effective_config(first).dump()).scenario) == all(first));
  }
}

TEST_CASE("lists by page type set the latencies of all pages to their means") {
  const nfc::FlashConfig f = load(kDeepFlash).scenario.platform.device.flash;
  CHECK(f.read_latency == SimTime::microseconds(60));
  CHECK(f.program_latency == SimTime::microseconds(600));
  CHECK(f.page_types->read_latency.size() == 3);
  CHECK(f.suspend->kinds == nfc::Suspend::erase);
  CHECK(f.class_priority == std::vector{OpClass::attend, OpClass::gc});
}

TEST_CASE("values come from the strongest layer, and say from which") {
  const Resolved r = load(
      "csdsim: 1\nmodel: {preset: opt-13b}\nplatform:\n  device: {preset: instcsd-prototype, flash: "
      "{read_latency: 40 us}}\nworkload: {kind: generation, output_tokens: 8}\n",
      {"platform.device.flash.channels=2", "seed=7", "seed=9"});
  const nfc::FlashConfig& f = r.scenario.platform.device.flash;
  CHECK(f.geometry.channels == 2);
  CHECK(f.geometry.dies_per_channel == 4);
  CHECK(f.read_latency == SimTime::microseconds(40));
  CHECK(r.scenario.seed == 9);
  CHECK(r.scenario.name == "s");
  const auto origins = config::dump_origins(r.origins);
  CHECK(origins["platform.device.flash.channels"] == "--set platform.device.flash.channels=2");
  CHECK(origins["platform.device.flash.dies_per_channel"] == "preset instcsd-prototype (assumed: not stated)");
  CHECK(origins["platform.device.flash.read_latency"] == "s.yaml:4:61");
  CHECK(origins["platform.device.flash.command_time"].get<std::string>().starts_with("default (assumed: "));
  CHECK(origins["platform.device.dram.capacity"] == "preset instcsd-prototype (paper: InstInfer V-B)");
}

TEST_CASE("a platform may be that of another scenario file, with the presets and files that it names") {
  const TemporaryDirectory folder;
  std::filesystem::create_directories(folder.path() / "drives");
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
  };
  write("drives/fast.yaml",
        "kind: device\npresets:\n  fast:\n    doc: A drive.\n    values:\n      flash:\n        read_latency: {v: 7 "
        "us, src: measured, cite: here}\n");
  write("drives/my_ssd.yaml",
        "csdsim: 1\npresets: fast.yaml\nplatform:\n  device:\n    preset: fast\n    flash: {channels: 3}\n");
  write("empty.yaml", "csdsim: 1\nmodel: {preset: opt-13b}\n");
  write("old.yaml", "csdsim: 7\nplatform: {device: {count: 1}}\n");
  const auto load = [&](const std::string& top, const std::vector<std::string>& sets = {}) {
    return load_scenario_text("csdsim: 1\nworkload: {kind: block_io}\n" + top, "s.yaml", folder.path(), sets).base;
  };
  const Resolved named = load("platform: drives/my_ssd.yaml\n");
  const nfc::FlashConfig& flash = named.scenario.platform.device.flash;
  CHECK(flash.geometry.channels == 3);
  CHECK(flash.read_latency == SimTime::microseconds(7));
  CHECK_THAT(named.origins.at("platform.device.flash.channels").text(), Catch::EndsWith("drives/my_ssd.yaml:6:23"));
  CHECK(named.scenario.inputs.size() == 2);  // files whose change makes another run

  // --set platform=FILE replaces the platform of the scenario; the --set behind it changes a part of it.
  const Resolved set = load("platform: {device: {flash: {channels: 5, read_latency: 9 us}}}\n",
                            {"platform=drives/my_ssd.yaml", "platform.device.flash.channels=6"});
  CHECK(set.scenario.platform.device.flash.geometry.channels == 6);
  CHECK(set.scenario.platform.device.flash.read_latency == SimTime::microseconds(7));
  // Both scenarios name the same file of presets: it is read once.
  CHECK(load("presets: [drives/fast.yaml]\nplatform: drives/my_ssd.yaml\n").scenario.preset_files.size() == 1);
  const std::string dumped = effective_config(named.scenario).dump();
  CHECK(effective_config(load_scenario_text(dumped, "t.yaml", "/").base.scenario).dump() == dumped);

  CHECK_THROWS_WITH(load("platform: nowhere.yaml\n"),
                    Catch::Contains("s.yaml:3:11: error: platform: there is no file 'nowhere.yaml'"));
  CHECK_THROWS_WITH(load("platform: empty.yaml\n"), Catch::Contains("empty.yaml has no map `platform`"));
  CHECK_THROWS_WITH(load("platform: old.yaml\n"), Catch::Contains("old.yaml:1:9: error: csdsim: this build reads"));
}

TEST_CASE("paths of a platform are relative to the file that says them") {
  const TemporaryDirectory folder;
  std::filesystem::create_directories(folder.path() / "gpus");
  std::ofstream(folder.path() / "gpus/times.json") << "{}";
  std::ofstream(folder.path() / "gpus/mine.yaml")
      << "csdsim: 1\nplatform: {gpu: {preset: a6000, timing: measured, times: times.json}}\n";
  const Resolved read =
      load_scenario_text("csdsim: 1\nworkload: {kind: block_io}\nplatform: gpus/mine.yaml\n", "s.yaml", folder.path())
          .base;
  CHECK(std::filesystem::equivalent(read.scenario.platform.gpu.times->path, folder.path() / "gpus/times.json"));
}

TEST_CASE("a stronger layer that changes the kind drops the settings of the old one, and says so") {
  const Resolved r = load(kContract, {"system.kind=instinfer-dense"});
  CHECK(r.scenario.system.kind() == "instinfer-dense");
  REQUIRE(r.notes.size() == 1);
  CHECK(
      r.notes[0] ==
      "s.yaml:24:33: note: system.ratio is not used: --set system.kind=instinfer-dense asks for kind instinfer-dense");
  CHECK_THROWS_AS(load(kContract, {"system={kind: instinfer-dense, method: sparf}"}), config::ConfigError);
  CHECK(system_as<InstinferSparf>(load(kContract, {"system.method=sparf"}).scenario).stated == Method::sparf);
}

TEST_CASE("of bandwidth and generation of a link the stronger layer counts") {
  const Scenario file = load(
                            "csdsim: 1\nplatform: {device: {preset: instcsd-zynq7045, link: {bandwidth: 6.459 GB/s}}}\n"
                            "workload: {kind: block_io}\n")
                            .scenario;
  CHECK(file.platform.device.link.raw_bandwidth() == Bandwidth{6'459'000'000});
  CHECK_FALSE(file.platform.device.link.generation);
  const std::string base =
      "csdsim: 1\nplatform: {device: {link: {bandwidth: 6.459 GB/s}}}\nworkload: {kind: block_io}\n";
  const Scenario set = load(base, {"platform.device.link.generation=4", "platform.device.link.lanes=8"}).scenario;
  CHECK_FALSE(set.platform.device.link.bandwidth);
  CHECK(set.platform.device.link.raw_bandwidth() == Bandwidth{15'753'846'153});
  CHECK(nvme::LinkConfig{.generation = 2, .lanes = 1, .bandwidth = {}}.raw_bandwidth() == Bandwidth{500'000'000});
}

TEST_CASE("a block_io workload says which parts of a scenario it leaves alone") {
  const std::string text = std::string(kContract);
  const Resolved r = load(text, {"workload={kind: block_io, pattern: random_read}", "simulation.sampling=off"});
  CHECK(r.scenario.workload.kind() == "block_io");
  CHECK(r.notes.size() >= 3);
  CHECK_FALSE(effective_config(r.scenario).contains("model"));
}

TEST_CASE("a checkpoint gives the shape; a scenario that says otherwise is wrong") {
  const Loaded loaded = load_scenario(kRoot / "scenarios/quickstart.yaml");
  const host::ModelSpec& m = loaded.base.scenario.model;
  CHECK(m.layers == 6);
  CHECK(m.heads == 4);
  CHECK(m.kv_heads == 4);
  CHECK(m.head_dim == 64);
  CHECK(m.ffn == 1024);
  CHECK(m.max_positions == 2048);
  CHECK(std::filesystem::exists(m.path->path / "config.json"));
  CHECK(workload_as<GenerationWorkload>(loaded.base.scenario).batch == 4);
  CHECK_THROWS_WITH(load_scenario(kRoot / "scenarios/quickstart.yaml", {"model.layers=7"}),
                    "--set model.layers=7: error: model.layers: 7 disagrees with the checkpoint, which has 6");
  // Named in a stronger layer, a checkpoint takes the place of a preset.
  const Resolved r = load(kContract, {"model.path=../models/opt-6m"});
  CHECK(r.scenario.model.layers == 6);
  CHECK_THROWS_WITH(load("csdsim: 1\nmodel: {preset: opt-13b, path: ../models/opt-6m}\nworkload: {kind: generation}\n"),
                    Catch::Contains("s.yaml:2:32: error: model.path and model.preset exclude each other"));
}

TEST_CASE("an error that is asked for later takes the place of the layers and steps of a sample") {
  const std::string file =
      "csdsim: 1\nmodel: {preset: opt-13b}\nworkload: {kind: generation, batch: 1, input_tokens: 64, output_tokens: "
      "64}\n"
      "simulation: {sampling: {layers: 3, steps: 3";
  CHECK(*load(file + "}}\n").scenario.simulation.sampling->layers == 3);
  const std::optional<SamplingConfig> sampling =
      load(file + "}}\n", {"simulation.sampling.error=2 %"}).scenario.simulation.sampling;
  CHECK(sampling->error == Ratio::of(2, 100));
  CHECK_FALSE(sampling->layers);
  CHECK_FALSE(sampling->steps);
  CHECK_THROWS_WITH(load(file + ", error: 2 %}}\n"),
                    Catch::Contains("simulation.sampling.error is not used: layers and steps are given"));
  CHECK_THROWS_WITH(load(file + "}}\n", {"simulation.sampling.error=2 %", "simulation.sampling.layers=4"}),
                    Catch::Contains("simulation.sampling.error is not used: layers and steps are given"));
}

TEST_CASE("a config.json alone gives the shape, and no weights") {
  const Resolved r = load(kContract, {"model.config=../models/llama-gqa-6m/config.json"});
  const host::ModelSpec& m = r.scenario.model;
  CHECK(m.architecture == host::Architecture::llama);
  CHECK(m.kv_heads < m.heads);
  CHECK(m.preset.empty());
  CHECK_FALSE(m.path);
  CHECK_THROWS_WITH(
      load("csdsim: 1\nmodel: {preset: opt-13b, config: ../models/opt-6m/config.json}\nworkload: {kind: generation}\n"),
      Catch::Contains("model.config and model.preset exclude each other"));
  CHECK_THROWS_WITH(load("csdsim: 1\nmodel: {config: missing.json}\nworkload: {kind: generation}\n"),
                    Catch::Contains("model.config: no such file: 'missing.json'"));
}

TEST_CASE("a context that is too long names the models of equal sizes that hold it") {
  const std::string text =
      "csdsim: 1\nmodel: {preset: llama-3-8b}\nworkload: {kind: generation, input_tokens: 32000}\n";
  CHECK_THROWS_WITH(load(text),
                    Catch::Contains("the 8192 positions of the model: give model.max_positions, or llama-3.1-8b"));
}

TEST_CASE("the layout follows from page, head and longest sequence, and from what the mapping is told") {
  Scenario s = empty_scenario();
  s.model.head_dim = 128;
  s.model.layers = 40;
  s.model.kv_heads = 40;
  s.system.select(InstinferSparf::kKind);
  const auto layout = [&](std::uint32_t tokens, Bytes page = Bytes::kib(4)) {
    auto& work = dynamic_cast<GenerationWorkload&>(*s.workload);
    work.input_tokens = 1;
    work.output_tokens = tokens - work.input_tokens;
    s.platform.device.flash.geometry.page_size = page;
    return experiment::kv_layout(s, *make_policy(s.platform.device.ftl.mapping, s.platform.device.flash.geometry));
  };
  CHECK(layout(4096).embedding_group == 1);
  CHECK(layout(2048).embedding_group == 2);
  CHECK(layout(2047).embedding_group == 4);
  CHECK(layout(10).embedding_group == 8);
  CHECK(layout(10, Bytes::kib(16)).embedding_group == 32);
  ftl::InstinferMapping given;
  given.embedding_group.components = 2;
  s.platform.device.ftl.mapping = given;
  CHECK(layout(10).embedding_group == 2);
  given.embedding_group = {.adaptive = true};
  s.platform.device.ftl.mapping = given;
  CHECK(layout(4096).embedding_group == 8);
  CHECK(layout(4096).doublings == 3);
  s.platform.device.ftl.mapping = ftl::PageL2pMapping{};
  CHECK(layout(4096).page_heads == 16);
  s.platform.device.count = 4;  // 10 heads each
  CHECK(layout(4096).page_heads == 10);
  s.system.select(InstinferDense::kKind);
  s.platform.device.ftl.mapping = ftl::PolicyMapping<ftl::PairedPolicy>{};
  CHECK(layout(4096).paired);
  CHECK_FALSE(layout(4096).component_major);
}

TEST_CASE("the contract's example with its sweep has six points") {
  CHECK(load_scenario_text(std::string(kContract) + kSweep, "s.yaml", ".").points.size() == 6);
}

}  // namespace test_scenario_load
