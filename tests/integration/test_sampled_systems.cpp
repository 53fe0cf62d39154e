// Sampled runs of offload systems whose data travel between GPU, host and drives, against whole ones.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/runner.h"
#include "tests/integration/small_platform.h"

namespace test_sampled_systems {

using namespace csdsim;
using namespace csdsim::test;

namespace {

/// Twelve layers. Programs are fast, so that those of the prefill do not reach into the decode steps.
scenario::Scenario timing(std::vector<std::string> sets) {
  sets.insert(sets.begin(), "platform.device.flash.program_latency=20 us");
  const std::string text =
      small_platform("hybrid") +
      "model: {layers: 12, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 1024, vocab_size: 1000, "
      "max_positions: 4096}\n"
      "workload: {kind: generation, batch: 4, input_tokens: 1000, output_tokens: 193, mini_batches: 1}\n"
      "simulation: {sampling: off}\n";
  return experiment::load_scenario_text(text, "sampled.yaml", CSDSIM_SOURCE_DIR, sets).base.scenario;
}

}  // namespace

TEST_CASE("in sampled runs of few layers, nothing works longer than the phase lasts") {
  // The pace of the two sampled layers is faster than the SmartSSD's internal link.
  const scenario::Scenario s = experiment::load_scenario(std::string(CSDSIM_SOURCE_DIR) + "/scenarios/hybrid.yaml",
                                                         {"system.kind=hilos", "platform.gpu.link.bandwidth=24 GB/s"})
                                   .base.scenario;
  const nlohmann::ordered_json decode = experiment::run_scenario(s).document["breakdown"]["decode"];
  for (const auto& [name, share] : decode["utilization"].items()) {
    CAPTURE(name);
    CHECK(share.get<double>() <= 1 + 1e-9);
  }
  double path = 0;
  for (const auto& [part, seconds] : decode["critical_path_s"].items()) path += seconds.get<double>();
  CHECK(path == Approx(decode["seconds"].get<double>()).epsilon(1e-6));
}

TEST_CASE("sampled runs of divided tokens are within 1 % of whole ones") {
  for (const std::string& system :
       {std::string("{kind: hybrid, recomputed_share: 0.2, gpu_share: 0.2, host_share: 0.2}"),
        std::string("{kind: hilos, x_cache: 30 %}")}) {
    CAPTURE(system);
    const scenario::Scenario s =
        timing({"system=" + system, "workload.batch=2", "model.kv_heads=4", "platform.device.count=2"});
    experiment::GenerationSetup setup = experiment::generation_setup(s, {1000, 700});
    const experiment::GenerationOutcome whole = experiment::run_generation(setup);
    setup.sampling.off = false;
    setup.sampling.steps = 16;
    const experiment::GenerationOutcome sampled = experiment::run_generation(setup);
    CAPTURE(sampled.statement, sampled.error.decode(), sampled.simulated_page_ops, whole.simulated_page_ops);
    CHECK(sampled.simulated_page_ops * 2 < whole.simulated_page_ops);
    CHECK(sampled.times.decode_s == Approx(whole.times.decode_s).epsilon(0.01));
    CHECK(std::abs(sampled.times.ttft_s / whole.times.ttft_s - 1) <= 1.5 * sampled.error.prefill + 2e-4);
  }
}

TEST_CASE("sampled runs count the copies that run ahead of a step") {
  // The copies of a step start in the step before it. With two layers and two buffers, all of them do.
  for (const std::string system : {"hybrid, recomputed_share: 0.45, gpu_share: 0, drive_share: 0.15", "host-kv", "kvpr",
                                   "hf-accelerate", "flexgen-ssd, policy: given, kv_on_gpu: 0, kv_on_host: 1"}) {
    const auto decode_of = [&](const std::string& sampling, std::string& statement) {
      const scenario::Scenario s = timing(
          {"system={kind: " + system + "}", "simulation.sampling=" + sampling, "platform.gpu.link.bandwidth=8 GB/s"});
      const experiment::GenerationOutcome out =
          experiment::run_generation(experiment::generation_setup(s, {1000, 1000, 1000, 1000}));
      statement = out.statement;
      return std::pair{out.times.decode_s, out.decode.gpu_link_bytes};
    };
    std::string statement;
    const auto [whole_s, whole_bytes] = decode_of("off", statement);
    for (const int layers : {2, 5}) {
      const auto [decode_s, bytes] = decode_of("{layers: " + std::to_string(layers) + ", steps: 8}", statement);
      CAPTURE(system, statement);
      CHECK(statement.find("of 192 decode steps") != std::string::npos);
      CHECK(decode_s == Approx(whole_s).epsilon(0.01));
      // Two layers are too few for the copies to settle.
      CHECK(bytes == Approx(whole_bytes).epsilon(layers < 5 ? 0.1 : 0.01));
    }
  }
}

TEST_CASE("copies of the prefill that fall behind after the simulated layers are in its stated error") {
  // Copies take longer than the GPU does; they stop it when all buffers are full, after more layers than are simulated.
  const auto prefill = [](const std::string& sampling) {
    const scenario::Scenario s =
        timing({"system={kind: kvpr, recomputed_share: 0.4, kv_buffers: 8}", "simulation.sampling=" + sampling,
                "model.layers=40", "platform.gpu.link.bandwidth=8 GB/s"});
    return experiment::run_generation(experiment::generation_setup(s, {1000, 1000, 1000, 1000}));
  };
  const experiment::GenerationOutcome whole = prefill("off"), sampled = prefill("{layers: 5, steps: 8}");
  const double off = whole.times.ttft_s / sampled.times.ttft_s - 1;
  CAPTURE(sampled.statement, off);
  REQUIRE(off > 0.01);
  CHECK(off <= sampled.error.prefill);
  CHECK(sampled.error.prefill < 3 * off);
}

TEST_CASE("mini-batches that hide each other's copies for tens of steps, or do not, are simulated whole") {
  const auto setup_with = [](std::uint32_t mini_batches) {
    const scenario::Scenario s = timing({"system={kind: leoam}", "simulation.sampling={error: 5 %}", "model.layers=20",
                                         "workload.mini_batches=" + std::to_string(mini_batches)});
    return experiment::generation_setup(s, {1000, 1000, 1000, 1000});
  };
  CHECK(setup_with(1).system->needs(setup_with(1).plan).why_all_steps.empty());
  CHECK(!setup_with(2).system->needs(setup_with(2).plan).why_all_steps.empty());
  // The search announces the whole run, which is not simulated here.
  struct Announced {};
  scenario::Scenario s =
      timing({"system={kind: leoam, kv_on_gpu: 0, kv_on_host: 0}", "simulation.sampling={error: 5 %}",
              "model.layers=40", "workload.mini_batches=2", "workload.batch=64", "workload.output_tokens=1000",
              "platform.device.flash.blocks_per_plane=40000", "platform.device.dram.capacity=16 GiB",
              "platform.host.memory=64 GiB"});
  experiment::GenerationHooks hooks;
  std::string announced;
  hooks.notice = [&](const std::string& line) {
    announced = line;
    throw Announced{};
  };
  CHECK_THROWS_AS(
      experiment::run_generation(experiment::generation_setup(s, std::vector<std::uint32_t>(64, 1000)), hooks),
      Announced);
  CHECK(announced.find("the whole run") != std::string::npos);
  CHECK_THROWS_WITH(
      timing({"system={kind: leoam}", "workload.mini_batches=2", "simulation.sampling={layers: 5, steps: 8}"}),
      Catch::Contains("simulation.sampling.steps") && Catch::Contains("use one mini-batch"));
  CHECK_NOTHROW(timing({"system={kind: leoam}", "simulation.sampling={layers: 5, steps: 8}"}));
}

TEST_CASE("a sampled run takes as long as the whole one where swapped memory holds everything") {
  // Two copies of the cache have 224 MiB at the end, the weights 50. In a sample of three layers, uses of the cache are
  // nearer to each other than in the whole run, and layers that
  // only the prefill simulates leave nothing in memory.
  const auto decode_of = [&](const std::string& sampling) {
    const scenario::Scenario s =
        timing({"system={kind: deepspeed-host}", "simulation.sampling=" + sampling, "platform.host.memory=300 MiB",
                "platform.gpu.link.bandwidth=8 GB/s", "platform.device.flash.blocks_per_plane=400"});
    return experiment::run_generation(experiment::generation_setup(s, {1000, 1000, 1000, 1000}));
  };
  const experiment::GenerationOutcome whole = decode_of("off");
  CHECK(whole.files->transferred.value == 0);
  for (const char* const sampling : {"{layers: 3, steps: 3}", "{layers: 5, steps: 8}"}) {
    CAPTURE(sampling);
    const experiment::GenerationOutcome sampled = decode_of(sampling);
    CHECK(sampled.files->transferred.value == 0);
    CHECK(sampled.times.decode_s == Approx(whole.times.decode_s).epsilon(0.01));
  }
}

}  // namespace test_sampled_systems
