// HILOS and hybrids from scenarios: tokens, closed forms of time, the solved division against a grid.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/platform_rates.h"
#include "experiment/runner.h"
#include "tests/integration/forced_run.h"
#include "tests/integration/small_model.h"
#include "tests/integration/small_platform.h"
#include "tests/integration/step_time.h"

namespace test_hybrid {

using namespace csdsim;
using namespace csdsim::test;

namespace {

using Sets = std::vector<std::string>;

const std::string kPlatform = small_platform("hybrid");

scenario::Scenario load(const std::string& text, const Sets& sets) {
  return experiment::load_scenario_text(text, "hybrid.yaml", CSDSIM_SOURCE_DIR, sets).base.scenario;
}

/// K and V of a token and layer take 2 KiB, its activations 1 KiB. Programs are fast, so that those of the prefill do
/// not reach into the decode steps.
scenario::Scenario timing(Sets sets) {
  sets.insert(sets.begin(), "platform.device.flash.program_latency=20 us");
  return load(kPlatform +
                  "model: {layers: 4, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
                  "vocab_size: 1000, max_positions: 4096}\n"
                  "workload: {kind: generation, batch: 4, input_tokens: 1000, output_tokens: 9, mini_batches: 1}\n"
                  "simulation: {sampling: off}\n",
              sets);
}

experiment::GenerationOutcome run(const scenario::Scenario& s) {
  const auto& workload = experiment::generation_of(s);
  return experiment::run_generation(
      experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens)));
}

/// Time of the whole run: what the drives program after the prefill may take time in either part.
double run_s(const Sets& sets) {
  const host::GenerationTimes times = run(timing(sets)).times;
  return times.ttft_s + times.decode_s;
}

/// Prompts of 1 and 2 tokens leave some parts without a token of these sequences.
Prompts some_prompts() { return {text_prompt(40), text_prompt(90, 50), text_prompt(1, 400), text_prompt(2, 900)}; }

/// A system of this kind with these parameters, as a scenario states them.
std::shared_ptr<const host::OffloadSystem> system_of(const std::string& parameters) {
  return load(kPlatform + "model: {preset: opt-13b}\nworkload: {kind: generation}\n",
              {"system=" + parameters, "platform.gpu.memory=4 TB", "platform.host.memory=4 TB",
               "platform.device.flash.blocks_per_plane=100000"})
      .system->clone();
}

enum class Attention : std::uint8_t { exact, sparse };

/// With sparse attention, logits are those of the same plan on the host only.
void check_carried(const std::string& parameters, std::uint32_t drives, const SmallModel& model,
                   const std::function<void(experiment::GenerationSetup&)>& change,
                   Attention attention = Attention::exact) {
  CAPTURE(parameters, drives);
  const Prompts prompts = some_prompts();
  experiment::GenerationSetup one = small_setup(small_drive(), prompts, 16, "instinfer-dense", model);
  static std::map<const SmallModel*, ForcedRun> oracles;
  const ForcedRun& oracle = oracles.try_emplace(&model, one, prompts, model, false).first->second;
  experiment::GenerationSetup setup = one;
  setup.system = system_of(parameters);
  setup.host = {.cores = 8,
                .core_flops = 10'000'000'000,
                .memory = Bandwidth{100'000'000'000},
                .efficiency = host::RooflineEfficiency::all({1, 2})};
  setup.platform.drives = drives;
  change(setup);
  const ForcedRun drive(setup, prompts, model, true, &oracle.tokens);
  const ForcedRun parts(setup, prompts, model, false, &oracle.tokens);
  CHECK(drive.digest == parts.digest);  // the drives return the bits that the host gets from the same tokens
  if (attention == Attention::sparse) {
    CHECK(drive.logits == parts.logits);
    CHECK(drive.digest != oracle.digest);
    return;
  }
  check_close(drive, oracle);
}

std::string shares(double recomputed, double kept, double copied, const std::string& more = "") {
  return "{kind: hybrid, recomputed_share: " + std::to_string(recomputed) + ", gpu_share: " + std::to_string(kept) +
         ", host_share: " + std::to_string(copied) + more + "}";
}

}  // namespace

TEST_CASE("carried: tokens are those of dense attention, wherever K and V are and however they come back") {
  const auto nothing = [](experiment::GenerationSetup&) {};
  const auto two = [](experiment::GenerationSetup& s) { s.plan.mini_batches = 2; };
  const auto staged = [](experiment::GenerationSetup& s) { s.plan.through_host = true; };
  check_carried(shares(0.25, 0.25, 0.25, ", write_back_tokens: 4"), 1, SmallModel::get(), nothing);
  check_carried(shares(0.25, 0.25, 0.25, ", write_back_tokens: 3"), 3, grouped(), two);
  check_carried(shares(0.2, 0.3, 0.1, ", write_back_tokens: 2, newest_tokens: host"), 2, SmallModel::get(), staged);
  check_carried(shares(0.3, 0, 0.7, ", write_back_tokens: 5"), 1, grouped(), nothing);  // no token in the drive
  check_carried("{kind: hilos, x_cache: 40 %, write_back_tokens: 4}", 2, SmallModel::get(), two);
  check_carried("{kind: hilos, x_cache: 40 %, write_back_tokens: 1}", 3, grouped(), staged);
  check_carried("{kind: hilos, x_cache: 0 %, write_back_tokens: 16}", 4, grouped(), nothing);
}

TEST_CASE("carried: activations in the drives are read from their flash") {
  const auto blocks = [](experiment::GenerationSetup& s) { s.platform.drive.kv_share = 0.5; };
  const auto staged = [](experiment::GenerationSetup& s) {
    s.platform.drive.kv_share = 0.5;
    s.plan.through_host = true;
    s.plan.mini_batches = 2;
  };
  check_carried("{kind: hilos, x_cache: 40 %, write_back_tokens: 4, activations: drives}", 2, SmallModel::get(),
                blocks);
  check_carried(shares(0.5, 0.1, 0.1, ", write_back_tokens: 3, activations: drives"), 3, grouped(), staged);
}

TEST_CASE("carried: drives with SparF choose among their own tokens, and their outputs are merged") {
  const auto nothing = [](experiment::GenerationSetup&) {};
  const auto two = [](experiment::GenerationSetup& s) { s.plan.mini_batches = 2; };
  const auto sparf = [](const std::string& budget) {
    return shares(0.2, 0.1, 0.2, ", write_back_tokens: 4, method: sparf, " + budget);
  };
  // With a budget of all tokens, nothing is left out.
  check_carried(sparf("k: 4096"), 1, SmallModel::get(), nothing);
  check_carried(sparf("k: 4096"), 3, grouped(), two);
  check_carried(sparf("ratio: 1/4"), 1, SmallModel::get(), nothing, Attention::sparse);
  check_carried(sparf("ratio: 1/2, l: 0"), 2, grouped(), two, Attention::sparse);
}

TEST_CASE("a layer takes what its slowest resource takes: link, GPU or drives") {
  // One resource is slow each time, and the closed form knows its rate.
  const Sets slow_link{"platform.gpu.link={bandwidth: 500 MB/s, latency: 0 ns}"};
  const auto step = [](const std::string& system, Sets sets) {
    sets.push_back("system=" + system);
    return steady_step_s(timing(sets));
  };
  const double layers = 4, kv = 2048, x = 1024, link = 500e6;
  CHECK(step(shares(0, 0, 1), slow_link) == Approx(layers * kv * (4 * 1000) / link).epsilon(0.02));
  CHECK(step(shares(1, 0, 0), slow_link) == Approx(layers * x * (4 * 1000) / link).epsilon(0.02));
  CHECK(step(shares(0.5, 0.25, 0.125), slow_link) ==
        Approx(layers * (x * 0.5 + kv * 0.125) * (4 * 1000) / link).epsilon(0.02));
  // Activations in the drives cross their links, of which there are three.
  const Sets slow_drives{"platform.device.link={bandwidth: 200 MB/s}", "platform.device.count=3",
                         "platform.gpu.link={bandwidth: 20 GB/s, latency: 0 ns}"};
  CHECK(step(shares(1, 0, 0, ", activations: drives"), slow_drives) ==
        Approx(layers * x * (4 * 1000) / (3 * 200e6)).epsilon(0.02));
  const Sets slow_gpu{"platform.gpu.fp16_rate=1 TFLOPS", "platform.gpu.efficiency.gemm=100 %",
                      "platform.gpu.kernel_launch=0 ns"};
  CHECK(step(shares(1, 0, 0), slow_gpu) == Approx(layers * 4 * 512 * 512 * (4 * 1000) / 1e12).epsilon(0.1));
  const host::PlatformRates rates = experiment::platform_rates(timing({}));
  const double drive = kv * (4 * 1000) / double(rates.drive.reads.bytes_per_second);
  CHECK(step(shares(0, 0, 0), {}) == Approx(layers * drive).epsilon(0.1));
  CHECK(step(shares(0, 0, 0, ", newest_tokens: host"), {}) == Approx(layers * drive).epsilon(0.1));
}

TEST_CASE("a faster link never makes a run slower, and more drives do not either") {
  for (const std::string& system : {shares(0.3, 0.2, 0.3), shares(0, 0, 0.6, ", newest_tokens: host"),
                                    std::string("{kind: hilos, x_cache: 50 %}")}) {
    double last = 1e9;
    for (const char* const link : {"1 GB/s", "4 GB/s", "16 GB/s", "64 GB/s"}) {
      CAPTURE(system, link);
      const double now =
          run_s({"system=" + system, std::string("platform.gpu.link={bandwidth: ") + link + ", latency: 0 ns}"});
      CHECK(now <= last * (1 + 1e-9));  // pieces that share a link come in another order
      last = now;
    }
  }
  double last = 1e9;
  for (const char* const drives : {"1", "2", "5"}) {
    const double now = run_s({"system=" + shares(0.2, 0, 0.2), std::string("platform.device.count=") + drives});
    CHECK(now <= last);
    last = now;
  }
}

namespace {

/// Two layers on a random platform, such that each part can be the best place of some tokens.
Sets random_platform(Rng& rng) {
  const auto pick = [&](std::initializer_list<const char*> values) {
    return std::string(*(values.begin() + rng.below(values.size())));
  };
  return {"model.layers=2",
          "model.kv_heads=" + pick({"8", "8", "4"}),
          "workload.batch=" + pick({"2", "3", "4"}),
          "workload.input_tokens=" + std::to_string(400 + rng.below(800)),
          "workload.output_tokens=64",  // no group is written back
          "platform.gpu.link={bandwidth: " + pick({"300 MB/s", "1 GB/s", "3 GB/s", "10 GB/s"}) + "}",
          "platform.gpu.fp16_rate=" + pick({"1 TFLOPS", "5 TFLOPS", "50 TFLOPS"}),
          "platform.gpu.memory_bandwidth=" + pick({"20 GB/s", "100 GB/s", "500 GB/s"}),
          "platform.gpu.memory=" + pick({"72 MiB", "80 MiB", "128 MiB"}),
          "platform.device.flash.channels=" + pick({"1", "2", "4"}),
          "platform.device.count=" + pick({"1", "2", "3"})};
}

/// The time of a settled step with the solved division over that with the best of all quarters.
double solved_over_quarters(const Sets& platform, const std::string& more) {
  const auto time = [&](const std::string& system) {
    Sets sets = platform;
    sets.push_back("system={kind: hybrid, write_back_tokens: 64" + system + more + "}");
    try {
      return settled_step_s(timing(sets));
    } catch (const UserError&) {
      return 1e9;  // does not fit
    }
  };
  double least = 1e9;
  for (int r = 0; r <= 4; ++r)
    for (int k = 0; r + k <= 4; ++k)
      for (int c = 0; r + k + c <= 4; ++c)
        least =
            std::min(least, time(", recomputed_share: " + std::to_string(r) + "/4, gpu_share: " + std::to_string(k) +
                                 "/4, host_share: " + std::to_string(c) + "/4"));
  return time("") / least;
}

}  // namespace

TEST_CASE("the division by rates fits and is near the best quarters in the simulator, on ten platforms") {
  std::vector<double> times;
  for (std::uint64_t seed = 1600; seed < 1610; ++seed) {
    Rng rng(seed, "hybrid platform");
    times.push_back(solved_over_quarters(random_platform(rng), seed % 2 == 0 ? "" : ", activations: drives"));
    CAPTURE(seed);
    CHECK(times.back() < 1.3);
  }
  std::ranges::sort(times);
  CAPTURE(times);
  CHECK(times[5] < 1.02);
}

TEST_CASE("given shares that leave too little room are an error, and so is a run that fits nowhere") {
  CHECK_THROWS_WITH(timing({"system={kind: hybrid}", "platform.gpu.memory=24 MiB"}),
                    Catch::Contains("no division of the tokens fits"));
}

}  // namespace test_hybrid
