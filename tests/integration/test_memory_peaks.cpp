// Memory that a run takes: of sampled runs against whole ones, for every system and place, and what an error proposes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_workload.h"
#include "host_runtime/core/systems/systems.h"
#include "tests/integration/small_platform.h"
#include "tests/integration/timing_setup.h"

namespace test_memory_peaks {

using namespace csdsim;
using namespace csdsim::test;

namespace {

/// Every system, with K and V, weights and activations in each place that it has for them.
const std::vector<std::string>& systems() {
  static const std::vector<std::string> all{
      "instinfer-dense",
      "instinfer-dense, shard: token",
      "instinfer-sparf",
      "gpu-only",
      "host-kv",
      "host-kv, kv_bits: 4",
      "host-kv, attention: host",
      "host-kv, weights_on_host: 100 %",
      "deepspeed-host",
      "deepspeed-host, kv: pinned",
      "deepspeed-host, kv: gpu",
      "hf-accelerate",
      "hf-accelerate, weights_on_host: 100 %",
      "flexgen-ssd",
      "flexgen-ssd, policy: given",
      "flexgen-ssd, policy: given, kv_on_gpu: 1/2, kv_on_host: 1/4, stores_attention_weights: false",
      "flexgen-ssd, policy: given, kv_on_host: 1, weights_on_host: 50 %, weights_in_files: 50 %",
      "flexgen-sparq",
      "kvpr, recomputed_share: 0.4",
      "kvpr, recomputed_share: 0.4, activations: gpu",
      "kvpr, recomputed_share: 0.4, weights_on_host: 100 %",
      "llm-in-a-flash, memory_share: 0.5",
      "in-drive-ffn",
      "in-drive-ffn, kv: drive",
      "hillinfer",
      "hilos, x_cache: 40 %",
      "hybrid, recomputed_share: 0.3, gpu_share: 0.1, host_share: 0.3",
      "hybrid, recomputed_share: 0.3, gpu_share: 0.1, host_share: 0.3, activations: drives",
      "h2o",
      "h2o, kv_on_gpu: 1/2, kv_on_host: 1/2",
      "infinigen",
      "leoam",
  };
  return all;
}

TimingSetup setup_of(const std::string& system, const std::vector<std::string>& more = {}) {
  std::vector<std::string> sets{"system={kind: " + system + "}", "platform.device.flash.program_latency=20 us",
                                "platform.device.flash.blocks_per_plane=400"};
  sets.insert(sets.end(), more.begin(), more.end());
  const scenario::Scenario s =
      experiment::load_scenario_text(
          small_platform("memory") +
              "model: {layers: 12, heads: 4, kv_heads: 4, head_dim: 64, hidden_size: 256, ffn_size: 1024, "
              "vocab_size: 1000, max_positions: 4096}\n"
              "workload: {kind: generation, batch: 4, input_tokens: 400, output_tokens: 161, mini_batches: 1}\n"
              "simulation: {sampling: off}\n",
          "memory.yaml", CSDSIM_SOURCE_DIR, sets)
          .base.scenario;
  const auto& workload = experiment::generation_of(s);
  return {s, std::vector(workload.batch, workload.input_tokens)};
}

using Peaks = std::map<host::Place, Bytes>;

Peaks peaks(experiment::GenerationSetup setup, const host::SamplingSettings& sampling) {
  setup.sampling = sampling;
  return experiment::run_generation(setup).memory_peaks;
}

}  // namespace

TEST_CASE("K and V that are written into a cache are in memory once") {
  // 4 sequences of 400 tokens and 160 more, 12 layers, 4 heads of 64 components: 2 B each, K and V.
  const Bytes cache{4ULL * 560 * 12 * 4 * 64 * 2 * 2};
  for (const char* const system : {"host-kv", "hf-accelerate", "flexgen-ssd, policy: given, kv_on_host: 1"}) {
    INFO(system);
    const TimingSetup timing = setup_of(system);
    CHECK(peaks(timing.setup, {.off = true}).at(host::Place::host()) == cache);
  }
}

TEST_CASE("the systems of the memory test are all that there are") {
  const host::SystemKinds kinds = host::builtin_systems();
  for (const auto& item : kinds.items()) {
    CAPTURE(item.name);
    CHECK(std::any_of(systems().begin(), systems().end(),
                      [&](const std::string& s) { return s.substr(0, s.find(',')) == item.name; }));
  }
}

/// K and V of one layer at the end. Where they come from files or swapped memory, what is on its way at a time may
/// differ by as much: a sample of few layers has another backlog of copies, and its last copies are of fewer tokens.
Bytes kv_of_layer(const experiment::GenerationSetup& setup) {
  return setup.plan.model.kv_bytes_per_token_and_layer() * setup.plan.workload.longest_contexts();
}

TEST_CASE("the peak memory of a sampled run is that of the whole run, in every place") {
  for (const std::string& system : systems()) {
    const TimingSetup timing = setup_of(system);
    const experiment::GenerationSetup& setup = timing.setup;
    const Peaks whole = peaks(setup, {.off = true});
    for (const std::uint32_t prefill_layers : {6U, 12U}) {
      host::SamplingSettings sampling = setup.sampling;
      sampling.off = false;
      sampling.layers = 5;
      sampling.prefill_layers = prefill_layers;
      sampling.steps = 4;
      const Peaks sampled = peaks(setup, sampling);
      CAPTURE(system, prefill_layers);
      REQUIRE(sampled.size() == whole.size());
      for (const auto& [place, bytes] : whole) {
        CAPTURE(host::place_name(place), bytes.value, sampled.at(place).value);
        const double off = std::abs(double(sampled.at(place).value) - double(bytes.value));
        CHECK(off <= (setup.file ? double(kv_of_layer(setup).value) : 0.001 * double(bytes.value)));
      }
    }
  }
}

TEST_CASE("what the message proposes where GPU memory is exceeded makes the run fit") {
  struct Case {
    std::string system, proposal;
    std::vector<std::string> sets;
  };
  const Case cases[] = {
      {"flexgen-ssd, policy: given",
       "system.stores_attention_weights: false",
       {"system.stores_attention_weights=false"}},
      {"flexgen-sparq", "system.stores_attention_weights: false", {"system.stores_attention_weights=false"}},
      {"h2o", "system.stores_attention_weights: false", {"system.stores_attention_weights=false"}},
      {"h2o", "workload.mini_batches above 1", {"workload.mini_batches=2"}},
      {"instinfer-dense", "system.kv_buffers: 1", {"system.kv_buffers=1"}},
      {"instinfer-dense", "workload.mini_batches above 1", {"workload.mini_batches=2"}},
      {"kvpr, recomputed_share: 0.4", "system.kv_buffers: 1", {"system.kv_buffers=1"}},
      {"hybrid, recomputed_share: 0.3, gpu_share: 0.1, host_share: 0.3",
       "system.kv_buffers: 1",
       {"system.kv_buffers=1"}},
      {"host-kv", "system.weights_on_host: 100 %", {"system.weights_on_host=100 %"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.system, c.proposal);
    TimingSetup tight = setup_of(c.system), changed = setup_of(c.system, c.sets);
    const Bytes peak = peaks(tight.setup, {.off = true}).at(host::Place::gpu());
    tight.setup.platform.gpu_memory = changed.setup.platform.gpu_memory = peak - Bytes{1};
    CHECK_THROWS_WITH(experiment::run_generation(tight.setup),
                      Catch::Contains("platform.gpu.memory") && Catch::Contains(c.proposal));
    CHECK_NOTHROW(experiment::run_generation(changed.setup));
  }
  // Nothing is proposed that the run has already.
  const std::pair<std::string, std::string> has_already[] = {
      {"h2o, stores_attention_weights: false", "stores_attention_weights"},
      {"host-kv, weights_on_host: 100 %", "weights_on_host"}};
  for (const auto& [system, parameter] : has_already) {
    TimingSetup least = setup_of(system);
    least.setup.platform.gpu_memory = peaks(least.setup, {.off = true}).at(host::Place::gpu()) - Bytes{1};
    try {
      experiment::run_generation(least.setup);
      FAIL("the run fits");
    } catch (const UserError& error) {
      CHECK(std::string(error.what()).find(parameter) == std::string::npos);
    }
  }
}

}  // namespace test_memory_peaks
