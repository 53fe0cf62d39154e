// Stated errors of sampled runs against true ones, over random small scenarios of every system that can be sampled.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/memory/kv_format.h"
#include "tests/integration/small_platform.h"
#include "tests/integration/timing_setup.h"

namespace test_stated_errors {

using namespace csdsim;
using namespace csdsim::test;

namespace {

/// Systems whose steps can be sampled; those with K and V in drives are half of them.
const char* const kSystems[] = {
    "instinfer-dense",
    "instinfer-sparf",
    "instinfer-sparf, ratio: 1/4",
    "instinfer-dense, shard: token",
    "hilos, x_cache: 40 %",
    "hybrid, recomputed_share: 0.3, gpu_share: 0.1, host_share: 0.3",
    "hillinfer",
    "leoam",
    "h2o, kv_on_gpu: 1/2, kv_on_host: 1/2",
    "infinigen",
    "host-kv",
    "kvpr, recomputed_share: 0.4",
    "flexgen-ssd, policy: given, kv_on_gpu: 1/2, kv_on_host: 1/4",
    "flexgen-sparq",
    "deepspeed-host",
};

struct RandomRun {
  std::string text;
  TimingSetup timing;
};

/// 3 to 6 sequences of a model with 16 to 32 layers, on one or two drives of 2 to 16 planes.
RandomRun random_run(std::uint32_t seed) {
  std::mt19937 rng(seed);
  const auto any = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(rng() % (high - low + 1));
  };
  const auto one_of = [&](std::vector<std::uint32_t> values) { return values[rng() % values.size()]; };
  const auto number = [](const std::string& path, std::uint32_t value) { return path + "=" + std::to_string(value); };
  const std::string system = kSystems[rng() % std::size(kSystems)];
  const std::uint32_t batch = any(3, 6), heads = any(4, 8), head_dim = one_of({64, 128}), longest = any(200, 900);
  const bool ragged = rng() % 2;
  std::vector<std::uint32_t> prompts(batch, longest);
  if (ragged)
    for (std::uint32_t& prompt : prompts) prompt = any(longest / 4, longest);
  const std::vector<std::string> sets{
      "system={kind: " + system + "}",
      number("model.layers", any(16, 32)),
      number("model.heads", heads),
      number("model.kv_heads", heads),
      number("model.head_dim", head_dim),
      number("model.hidden_size", heads * head_dim),
      number("model.ffn_size", 4 * heads * head_dim),
      number("workload.batch", batch),
      number("workload.input_tokens", longest),
      number("workload.output_tokens", any(97, 220)),
      number("workload.mini_batches", one_of({1, 1, 2})),
      number("platform.device.count", one_of({1, 1, 2})),
      number("platform.device.flash.channels", one_of({2, 4})),
      number("platform.device.flash.dies_per_channel", one_of({1, 2})),
      number("platform.device.flash.planes_per_die", one_of({1, 2})),
      number("platform.device.flash.blocks_per_plane", 4000),
      "platform.device.flash.program_latency=" + std::to_string(one_of({20, 100})) + " us",
      "platform.device.dram.capacity=1 GiB",
      number("seed", seed)};
  std::string text;
  for (const std::string& set : sets) text += (text.empty() ? "" : ", ") + set;
  const scenario::Scenario s =
      experiment::load_scenario_text(small_platform("random") +
                                         "model: {layers: 16, heads: 4, kv_heads: 4, head_dim: 64, hidden_size: 256, "
                                         "ffn_size: 1024, vocab_size: 1000, max_positions: 4096}\n"
                                         "workload: {kind: generation, batch: 4, input_tokens: 400, output_tokens: "
                                         "161, mini_batches: 1}\n"
                                         "simulation: {sampling: off}\n",
                                     "random.yaml", CSDSIM_SOURCE_DIR, sets)
          .base.scenario;
  return {text + (ragged ? ", ragged" : ""), TimingSetup(s, prompts)};
}

/// Adds places to the sample of `setup`. False, without a change, if there are too few steps for them.
bool goes_on(experiment::GenerationSetup& setup, const host::SampledPlaces& places) {
  setup.sampling.further = {places};
  const host::SamplingPlan plan(setup.plan.workload, setup.plan.model.layers, experiment::KvFormat(setup).grouping,
                                setup.sampling);
  if (plan.places().total() > 0) return true;
  setup.sampling.further.clear();
  return false;
}

std::uint32_t from_environment(const char* name, std::uint32_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(value, nullptr, 10));
}

/// What has become of the samples of some scenarios.
struct Compared {
  std::uint32_t samples = 0, extrapolated = 0, exceeded = 0;
};

/// Compares three samples of a random scenario with its whole run: the one with which the search begins, the same after
/// it has gone on, and one with all layers, so that only steps are estimated.
void compare_samples(std::uint32_t seed, Compared& compared) {
  RandomRun run = random_run(seed);
  experiment::GenerationSetup& setup = run.timing.setup;
  if (!setup.system->needs(setup.plan).why_all_steps.empty()) return;
  setup.sampling.off = true;
  const experiment::GenerationOutcome whole = experiment::run_generation(setup);
  setup.sampling.off = false;
  const auto compare = [&] {
    const experiment::GenerationOutcome sampled = experiment::run_generation(setup);
    // An error is stated of the estimate: the true value is within it.
    const double decode = std::abs(whole.times.decode_s / sampled.times.decode_s - 1);
    const double ttft = std::abs(whole.times.ttft_s / sampled.times.ttft_s - 1);
    ++compared.samples;
    compared.extrapolated += sampled.error.largest() > 0;
    constexpr double kRounding = 2e-4;
    if (decode <= sampled.error.decode() + kRounding && ttft <= sampled.error.prefill + kRounding)
      return sampled.measured;
    ++compared.exceeded;
    WARN("seed " << seed << ": decode " << 100 * decode << " %, " << 100 * sampled.error.decode()
                 << " stated; time to the first token " << 100 * ttft << " %, " << 100 * sampled.error.prefill
                 << " stated; " << run.text << "; " << sampled.statement);
    return sampled.measured;
  };
  setup.sampling.layers = host::kJudgedLayers;
  const auto measured = compare();
  if (goes_on(setup, {.plain = 5, .token_flush = 3, .window_flush = 3})) {
    setup.measured = measured;
    compare();
    setup.measured = nullptr;
  }
  setup.sampling.further.clear();
  setup.sampling.layers = setup.plan.model.layers;
  compare();
}

}  // namespace

TEST_CASE("at most one stated error in twenty is exceeded") {
  // Other runs: CSDSIM_FIRST_SEED=1000 CSDSIM_RUNS=100 test_stated_errors -s
  const std::uint32_t first = from_environment("CSDSIM_FIRST_SEED", 1), runs = from_environment("CSDSIM_RUNS", 40);
  Compared compared;
  for (std::uint32_t seed = first; seed < first + runs; ++seed) compare_samples(seed, compared);
  CAPTURE(first, compared.samples, compared.exceeded);
  CHECK(compared.extrapolated * 10 >= compared.samples * 8);
  CHECK(compared.exceeded * 20 <= compared.samples);
}

TEST_CASE("what few layers and few places do not show is stated") {
  // Copies before the first step; steps that cost more once a group has been written back; a link that falls behind
  // from a step on, but not within five layers.
  for (const std::uint32_t seed : {6013, 6083, 6103}) {
    CAPTURE(seed);
    Compared compared;
    compare_samples(seed, compared);
    CHECK(compared.samples >= 2);
    CHECK(compared.exceeded == 0);
  }
}

}  // namespace test_stated_errors
