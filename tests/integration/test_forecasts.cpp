// Announcements of a sampled run against what it simulates.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "experiment/experiments.h"
#include "experiment/sampling/sampling_search.h"
#include "tests/integration/small_platform.h"
#include "tests/integration/timing_setup.h"

namespace test_forecasts {

using namespace csdsim;
using namespace csdsim::test;

TEST_CASE("the page operations of samples and whole runs are forecast within a factor of two") {
  const std::vector<std::vector<std::string>> cases{
      {"system={kind: instinfer-dense}"},
      {"system={kind: instinfer-dense}", "simulation.sampling={layers: 5, steps: 4, heads: 8}",
       "platform.device.engine.jobs_in_flight=2"},
      {"system={kind: instinfer-sparf}"},
      {"system={kind: instinfer-sparf}", "simulation.selection.token_page_fraction=0.1"},
      {"system={kind: instinfer-sparf, ratio: 1/2}", "simulation.selection.token_page_fraction=1"},
      {"system={kind: hybrid, recomputed_share: 0.3, gpu_share: 0.1, host_share: 0.3}"},
      {"system={kind: hilos, x_cache: 40 %}"},
  };
  for (std::vector<std::string> sets : cases)
    for (const bool whole : {false, true}) {
      const std::string which = sets.front() + sets.back();
      if (whole) sets.push_back("simulation.sampling=off");
      sets.insert(sets.begin(), {"platform.device.flash.blocks_per_plane=400"});
      const scenario::Scenario s =
          experiment::load_scenario_text(
              small_platform("forecast") +
                  "model: {layers: 16, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
                  "vocab_size: 1000, max_positions: 4096}\n"
                  "workload: {kind: generation, batch: 6, input_tokens: 500, output_tokens: 161, mini_batches: 1}\n"
                  "simulation: {sampling: {layers: 5, steps: 4}}\n",
              "forecast.yaml", CSDSIM_SOURCE_DIR, sets)
              .base.scenario;
      const TimingSetup timing(s, std::vector<std::uint32_t>(6, 500));
      const double forecast = experiment::simulated_work(timing.setup).total();
      const experiment::GenerationOutcome out = experiment::run_generation(timing.setup);
      const auto simulated = double(out.simulated_page_ops);
      CAPTURE(which, whole, forecast, simulated);
      CHECK(simulated <= 2 * forecast);
      CHECK(forecast <= 2 * simulated);
      if (whole || which.find("instinfer") == std::string::npos) continue;
      experiment::GenerationSetup second = timing.setup;
      second.measured = out.measured;
      second.sampling.further = {{.plain = 5, .token_flush = 3, .window_flush = 2}};
      const double second_forecast = experiment::simulated_work(second).total();
      const auto second_simulated = double(experiment::run_generation(second).simulated_page_ops);
      CAPTURE(second_forecast, second_simulated);
      CHECK(second_simulated <= 2 * second_forecast);
      CHECK(second_forecast <= 2 * second_simulated);
    }
}

TEST_CASE("what is simulated is announced: stated samples, whole runs, and the first sample of a search with a bound") {
  struct Announced {};
  const auto announced = [](const std::string& sampling, const std::string& system = "instinfer-dense") {
    const scenario::Scenario s =
        experiment::load_scenario_text(
            small_platform("announced") +
                "model: {layers: 16, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
                "vocab_size: 1000, max_positions: 4096}\n"
                "workload: {kind: generation, batch: 64, input_tokens: 1000, output_tokens: 1000, mini_batches: 1}\n",
            "announced.yaml", CSDSIM_SOURCE_DIR,
            {"system={kind: " + system + "}", "simulation.sampling=" + sampling,
             "platform.device.flash.blocks_per_plane=40000", "platform.device.dram.capacity=16 GiB",
             "platform.host.memory=64 GiB"})
            .base.scenario;
    const TimingSetup timing(s, std::vector<std::uint32_t>(64, 1000));
    experiment::GenerationHooks hooks;
    std::string text;
    hooks.notice = [&](const std::string& line) {
      text = line;
      throw Announced{};
    };
    CHECK_THROWS_AS(experiment::run_generation(timing.setup, hooks), Announced);
    return text;
  };
  CHECK_THAT(announced("{layers: 5, steps: 60, heads: 0}"),
             Catch::StartsWith("simulating the stated sample, about ") && !Catch::Contains("at most"));
  CHECK_THAT(announced("off"), Catch::StartsWith("simulating the whole run, about "));
  // The system reads the tokens that it chooses.
  CHECK_THAT(announced("off", "hillinfer"), Catch::StartsWith("simulating the whole run, at most "));
  CHECK_THAT(announced("{error: 1 %, heads: 4096}"), Catch::StartsWith("simulating a first sample") &&
                                                         Catch::Contains("until the error is within 1 %, at most"));
}

}  // namespace test_forecasts
