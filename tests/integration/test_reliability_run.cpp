// Effects of errors of the flash on a run: retries take time, lost pages fail their command, failing blocks end in
// spares.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "csd_model/device_config.h"
#include "experiment/experiments.h"
#include "experiment/measure/endurance.h"
#include "experiment/runner.h"

namespace test_reliability_run {

using namespace csdsim;
using namespace csd_model;

namespace {

scenario::RunResult run(const std::vector<std::string>& sets) {
  const std::string text =
      "csdsim: 1\nplatform: {device: {flash: {channels: 2, dies_per_channel: 2, planes_per_die: 2, blocks_per_plane: "
      "32, pages_per_block: 32}, dram: {capacity: 64 MiB}, ftl: {mapping: {kind: page}}}}\n"
      "workload: {kind: block_io, pattern: random_read, requests: 20000, queue_depth: 1, working_set: 0.9}\n";
  const auto loaded = experiment::load_scenario_text(text, "r.yaml", CSDSIM_SOURCE_DIR, sets);
  return experiment::run_scenario(loaded.base.scenario);
}

double metric(const scenario::RunResult& result, const char* name) {
  return result.document["metrics"][name].get<double>();
}

std::string model(const std::string& values) { return "platform.device.flash.reliability={" + values + "}"; }

}  // namespace

TEST_CASE("a new drive reads as one without errors") {
  auto without = run({}).document, with = run({model("cell: tlc")}).document;
  for (auto* const document : {&without, &with})
    for (const char* const differs : {"scenario", "wall", "name"}) document->erase(differs);
  CHECK(with.dump() == without.dump());
}

TEST_CASE("retries of worn flash take their share of time, and correct what is read") {
  const scenario::RunResult fresh = run({}), worn = run({model("pe_cycles: 1500, retention_days: 240")});
  CHECK(worn.failure.empty());
  CHECK(metric(worn, "latency_p50_ns") == metric(fresh, "latency_p50_ns"));
  // A retry senses and moves the page again, after another command: a second attempt takes as long as the first.
  const double alone = metric(fresh, "latency_mean_ns");
  const double share = (metric(worn, "latency_mean_ns") - alone) / alone;
  CHECK(share > 0.02);
  CHECK(share < 0.2);
  CHECK(metric(worn, "latency_p99_ns") > 1.8 * alone);
  CHECK(metric(worn, "energy_j") > metric(fresh, "energy_j") * (1 + share / 2));
  // Retries by a shorter way.
  const scenario::RunResult quick = run({model("pe_cycles: 1500, retention_days: 240, retry_latency: 20 us")});
  CHECK(metric(quick, "latency_mean_ns") < metric(worn, "latency_mean_ns"));
  CHECK(metric(quick, "latency_mean_ns") > alone);
}

TEST_CASE("a page that no retry corrects fails its command") {
  const scenario::RunResult lost = run({model("pe_cycles: 1500, retention_days: 240, max_retries: 0")});
  CHECK(lost.document["metrics"]["requests_completed"] == 20000);
  CHECK_THAT(lost.failure, Catch::Contains("requests failed"));
  CHECK_THAT(lost.failure, Catch::Contains("nrecovered"));
}

TEST_CASE(
    "blocks whose programs fail are replaced while there are spares; without one the drive takes no more writes") {
  const auto writes = [](const char* spares) {
    return run({model("pe_cycles: 3000, program_failure: 0.0003"), "workload.pattern=random_write",
                "workload.working_set=0.7", std::string("platform.device.ftl.spare_blocks=") + spares});
  };
  const scenario::RunResult spared = writes("6");
  CHECK(spared.failure.empty());
  const auto& ftl = spared.document["stats"]["drives"][0]["block_ftl"];
  CHECK(ftl["program_failures"]["value"].get<double>() > 0);
  CHECK(ftl["retired_pages_moved"]["value"].get<double>() > 0);
  const scenario::RunResult bare = writes("0");
  CHECK(bare.document["metrics"]["requests_completed"] == 20000);
  CHECK_THAT(bare.failure, Catch::Contains("namespace_write_protected"));
}

TEST_CASE("results of errors are those of the seed") {
  const std::string worn = model("pe_cycles: 1500, retention_days: 240");
  const auto latency = [&](const std::string& seed) { return metric(run({worn, "seed=" + seed}), "latency_mean_ns"); };
  CHECK(latency("1") == latency("1"));
  CHECK(latency("1") != latency("2"));
}

TEST_CASE("reliability that cannot be is refused where it was given") {
  CHECK_THROWS_WITH(run({model("codeword: 3 KiB")}), Catch::Contains("reliability.codeword: 3 KiB does not divide"));
  CHECK_THROWS_WITH(run({model("max_retries: 0, retry_latency: 20 us")}), Catch::Contains("retry_latency is not used"));
  CHECK_THROWS_WITH(run({model("cell: qlc"), "platform.device.flash.page_types={cell: slc, read_latency: [50 us]}"}),
                    Catch::Contains("disagrees with page_types"));
  CHECK_THROWS_WITH(run({model("rated_cycles: 1000"), "platform.device.flash.rated_cycles=1000"}),
                    Catch::Contains("flash.rated_cycles is not used"));
}

TEST_CASE("a drive without a model of errors has rated cycles, and a model of errors may have its own") {
  const auto rated = [](const std::vector<std::string>& sets) {
    const auto loaded = experiment::load_scenario_text(
        "csdsim: 1\nplatform: {device: {flash: {word_line_pages: 4}, ftl: {mapping_unit: 4 KiB, mapping: {kind: "
        "page}}, write_buffer: {capacity: 1 MiB}}}\nworkload: {kind: block_io}\n",
        "r.yaml", CSDSIM_SOURCE_DIR, sets);
    return csd_model::drive_config(loaded.base.scenario.platform.device, 1);
  };
  CHECK(rated({}).rated_cycles == 3000);
  CHECK(rated({"platform.device.flash.rated_cycles=1500"}).rated_cycles == 1500);
  const std::string pages = "platform.device.ftl.mapping_unit=4 KiB", lines = "platform.device.flash.word_line_pages=1";
  const auto with_errors = rated({pages, lines, "platform.device.flash.rated_cycles=1500", model("cell: tlc")});
  CHECK(with_errors.reliability->rated_cycles == 1500);
  CHECK(rated({pages, lines, model("rated_cycles: 700")}).rated_cycles == 700);
}

TEST_CASE("presets of products live as long as their data sheets say, and where cycles are from is told") {
  const auto load = [](const std::string& device, const std::vector<std::string>& sets = {}) {
    return experiment::load_scenario_text(
               "csdsim: 1\nplatform: {device: {" + device + "}}\nworkload: {kind: block_io}\n", "r.yaml",
               CSDSIM_SOURCE_DIR, sets)
        .base.scenario;
  };
  // Terabytes that the flash may be written. Divided by the write amplification, they are those of the host.
  const auto terabytes = [&](const std::string& preset) {
    return experiment::rated_bytes(load("preset: " + preset)) * 1e-12;
  };
  CHECK(terabytes("samsung-980-pro-2tb") == Approx(1'200).epsilon(1e-3));
  CHECK(terabytes("micron-9550-max-6.4tb") == Approx(74'200).epsilon(1e-3));
  CHECK(terabytes("micron-9650-max-6.4tb") == terabytes("micron-9550-max-6.4tb"));
  CHECK(
      experiment::rated_cycles_text(load("preset: micron-9550-max-6.4tb")) ==
      "8434 program/erase cycles (preset micron-9550-max-6.4tb, calibrated: Micron 9550 data sheet: 74,200 TB written "
      "in sequence, with a write amplification of 1, over 8.798 TB of flash; its 35,040 TB at random are the same at "
      "2.12)");
  const std::string own = "platform.device.flash.rated_cycles=9000";
  CHECK(terabytes("samsung-pm9d3a-7.68tb") == Approx(14'016 * 3.54).epsilon(1e-3));
  CHECK(experiment::rated_cycles_text(load("preset: micron-9550-max-6.4tb", {own})) ==
        "9000 program/erase cycles (as the scenario says)");
  CHECK(experiment::rated_cycles_text(load("count: 1")) ==
        "3000 program/erase cycles (assumed: common for 3D TLC; from a data sheet: bytes written x write amplification "
        "/ bytes of flash)");
}

TEST_CASE("a block run says when more was written than the SLC cache holds") {
  const std::string writes = "workload.pattern=random_write";
  const scenario::RunResult small = run({writes, "platform.device.flash.slc_cache=1 MB"});
  CHECK_THAT(small.meaning, Catch::Contains("A drive was written 0.08192 GB. All of it is simulated at the rate of its "
                                            "SLC cache, which holds 0.001 GB"));
  CHECK(small.document["stats"]["notes"].size() == 1);
  const scenario::RunResult large = run({writes, "platform.device.flash.slc_cache=1 GB"});
  CHECK_THAT(large.meaning, !Catch::Contains("SLC cache"));
  CHECK(large.document["metrics"] == small.document["metrics"]);
  CHECK_FALSE(large.document["stats"].contains("notes"));
}

}  // namespace test_reliability_run
