// Several GPUs: tokens, closed forms of what they share and what they do not, memory, and errors.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/runner.h"
#include "tests/integration/small_platform.h"

namespace test_gpus {

using namespace csdsim;
using Catch::Contains;

namespace {

const std::vector<std::string> kSystems = {
    "system.kind=gpu-only",
    "system.kind=host-kv",
    "system={kind: host-kv, attention: host, weights_on_host: 50 %}",
    "system={kind: flexgen-ssd, policy: given}",
    "system={kind: flexgen-ssd, policy: given, kv_on_gpu: 30 %, kv_on_host: 30 %, weights_on_host: 50 %}",
    "system.kind=deepspeed-host",
    "system.kind=instinfer-dense",
    "system={kind: instinfer-sparf, ratio: 1/4}"};

const std::string kPlatform = test::small_platform("gpus");

scenario::Scenario load(const std::string& text, const std::vector<std::string>& sets) {
  return experiment::load_scenario_text(text, "gpus.yaml", CSDSIM_SOURCE_DIR, sets).base.scenario;
}

/// A model of 4 layers in timing runs.
scenario::Scenario timing(const std::vector<std::string>& sets) {
  return load(kPlatform +
                  "model: {layers: 4, heads: 8, kv_heads: 4, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
                  "vocab_size: 1000, max_positions: 4096}\n"
                  "system: {kind: gpu-only}\n"
                  "workload: {kind: generation, batch: 8, input_tokens: 100, output_tokens: 6}\n"
                  "simulation: {sampling: off}\n",
              sets);
}

experiment::GenerationSetup setup_of(const scenario::Scenario& s) {
  const auto& workload = experiment::generation_of(s);
  return experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens));
}

experiment::GenerationOutcome run(const std::vector<std::string>& sets, const experiment::GenerationHooks& hooks = {}) {
  return experiment::run_generation(setup_of(timing(sets)), hooks);
}

/// Time of a decode step of `sequences` on one GPU whose operators follow one another.
double step_seconds(const experiment::GenerationSetup& setup, std::uint32_t sequences, std::uint64_t context) {
  const host::GpuModel gpu(setup.gpu);
  const host::ModelShape& model = setup.plan.model;
  const SimTime layer = gpu.time(model.attention_inputs(sequences)) +
                        gpu.time(model.decode_attention(sequences, context)) + gpu.time(model.finish_layer(sequences));
  return (gpu.time(model.embed(sequences)) + gpu.time(model.sample(sequences))).seconds() +
         layer.seconds() * model.layers;
}

}  // namespace

TEST_CASE("carried runs with several GPUs make the tokens of attention on the host, with every system") {
  for (const std::string& system : kSystems)
    for (const auto& [gpus, parts] : {std::pair{2, "auto"}, {2, "3"}, {3, "3"}}) {
      CAPTURE(system, gpus, parts);
      std::vector<std::string> sets{system, "platform.gpu.count=" + std::to_string(gpus)};
      if (std::string(parts) != "auto") sets.push_back(std::string("workload.mini_batches=") + parts);
      const scenario::Scenario s =
          load(kPlatform +
                   "model: {path: models/opt-6m}\n"
                   "workload: {kind: generation, batch: 3, input_tokens: 40, output_tokens: 5}\n"
                   "simulation: {data: carried, compare: [host]}\n",
               sets);
      const scenario::RunResult result = experiment::run_scenario(s);
      CHECK(result.failure.empty());
      CHECK(result.document["comparison"]["host"]["tokens_compared"] == 15);
      CHECK(result.document["comparison"]["host"]["tokens_equal"] == 15);
      CHECK(result.document["stats"]["integrity_errors"] == 0);
    }
}

TEST_CASE("a decode step on several GPUs takes the time of its share of the batch on one") {
  const experiment::GenerationSetup setup = setup_of(timing({}));
  for (const std::uint32_t gpus : {1U, 2U, 4U, 8U}) {
    CAPTURE(gpus);
    const experiment::GenerationOutcome out = run({"platform.gpu.count=" + std::to_string(gpus)});
    double expected = 0;
    const std::uint32_t sequences = 8 / gpus;
    for (std::uint32_t step = 0; step < 5; ++step)
      expected += step_seconds(setup, sequences, std::uint64_t{sequences} * (100 + step + 1));
    CHECK(out.times.decode_s == Approx(expected).epsilon(1e-6));
  }
  // Every GPU reads all weights: the same batch per GPU gives the same step and so many times the tokens.
  const double one = run({"workload.batch=8"}).times.decode_s;
  CHECK(run({"workload.batch=16", "platform.gpu.count=2"}).times.decode_s == Approx(one).epsilon(1e-9));
  CHECK(run({"workload.batch=32", "platform.gpu.count=4"}).times.decode_s == Approx(one).epsilon(1e-9));
}

TEST_CASE("GPUs do not speed up what the host computes") {
  const std::string system = "system={kind: host-kv, attention: host}";
  const std::vector<std::string> slow_host{system, "platform.host.memory_bandwidth=1 GB/s", "workload.mini_batches=4"};
  auto with_two = slow_host;
  with_two.emplace_back("platform.gpu.count=2");
  const double one = run(slow_host).times.decode_s, two = run(with_two).times.decode_s;
  // The copies of two GPUs take a little more of the host's memory from its cores.
  CHECK(two <= 1.01 * one);
  CHECK(two > 0.97 * one);
}

TEST_CASE("mini-batches are on the GPUs in turn, and every GPU has its own links") {
  std::map<std::uint32_t, std::set<std::uint32_t>> of_gpu;
  std::set<std::string> names;
  experiment::GenerationHooks hooks;
  hooks.operation = [&](const host::OperationRecord& r) {
    names.insert(host::resource_name(r.resource));
    if (r.resource.kind == host::ResourceKind::gpu) of_gpu[r.resource.index].insert(r.tag.mini_batch.value);
  };
  run({"platform.gpu.count=3", "workload.mini_batches=5", "system.kind=host-kv"}, hooks);
  CHECK(of_gpu == std::map<std::uint32_t, std::set<std::uint32_t>>{{0, {0, 3}}, {1, {1, 4}}, {2, {2}}});
  for (const char* const name :
       {"gpu", "gpu 1", "gpu 2", "link host to gpu", "link host to gpu 2", "link gpu 1 to host"})
    CHECK(names.count(name) == 1);
}

TEST_CASE("weights in host memory are copied to every GPU once a step") {
  const std::string system = "system={kind: flexgen-ssd, policy: given, kv_on_gpu: 100 %, weights_on_host: 50 %}";
  const auto bytes = [&](const char* gpus, const char* parts) {
    const experiment::GenerationOutcome out =
        run({system, std::string("platform.gpu.count=") + gpus, std::string("workload.mini_batches=") + parts});
    return out.prefill.gpu_link_bytes + out.decode.gpu_link_bytes;
  };
  const double one = bytes("1", "4");
  CHECK(one > 0);
  CHECK(bytes("2", "4") == 2 * one);
  CHECK(bytes("2", "3") == 2 * one);
  CHECK(bytes("4", "4") == 4 * one);
}

TEST_CASE("no GPU, link or host is ever busy for longer than the phase, and results are the same twice") {
  Rng rng(7, "gpus");
  for (int i = 0; i < 24; ++i) {
    const std::uint32_t gpus = 1 + static_cast<std::uint32_t>(rng.below(4));
    std::vector<std::string> sets{
        kSystems[rng.below(kSystems.size())], "platform.gpu.count=" + std::to_string(gpus),
        "workload.mini_batches=" + std::to_string(gpus + rng.below(4)),
        rng.below(2) == 0 ? "platform.overlap.mini_batches=false" : "platform.overlap.mini_batches=true"};
    CAPTURE(sets);
    const experiment::GenerationOutcome out = run(sets);
    for (const auto* const phase : {&out.prefill, &out.decode}) {
      const double most = phase->seconds * gpus * (1 + 1e-9);
      CHECK(phase->of(host::ResourceKind::gpu).busy_s <= most);
      CHECK(phase->of(host::ResourceKind::host_to_gpu).busy_s <= most);
      // Copies of the prefill's last K and V may end in decode.
      CHECK(out.prefill.of(host::ResourceKind::gpu_to_host).busy_s +
                out.decode.of(host::ResourceKind::gpu_to_host).busy_s <=
            (out.prefill.seconds + out.decode.seconds) * gpus * (1 + 1e-9));
    }
    const experiment::GenerationOutcome again = run(sets);
    CHECK(again.times.ttft_s == out.times.ttft_s);
    CHECK(again.times.decode_s == out.times.decode_s);
  }
}

TEST_CASE("each GPU's memory has all weights and the K and V of its own sequences") {
  const scenario::Scenario s = timing({});
  const std::uint64_t weights = s.model.shape().weight_bytes().value;
  const std::uint64_t kv = s.model.shape().kv_bytes_per_token().value * 105;  // K and V of a sequence
  const std::string memory = fmt::format("platform.gpu.memory={} B", weights + 7 * kv + 400'000);
  CHECK_THROWS_WITH(timing({memory}), Contains("platform.gpu.memory: gpu-only keeps") && Contains("would fit"));
  CHECK_NOTHROW(run({memory, "platform.gpu.count=2"}));
  CHECK_THROWS_WITH(timing({memory, "platform.gpu.count=2", "workload.batch=16"}),
                    Contains("in GPU memory of one of the 2 GPUs") && Contains("a batch of 14 would fit"));
  // What a step needs beside them is counted for each GPU, too.
  const std::string tight = fmt::format("platform.gpu.memory={} B", weights + 4 * kv + 1000);
  CHECK_THROWS_WITH(run({tight, "platform.gpu.count=2"}), Contains("platform.gpu.memory") && Contains("gpu"));
}

TEST_CASE("more GPUs than sequences or mini-batches, and FlexGen's search for several GPUs, are refused") {
  CHECK_THROWS_WITH(timing({"platform.gpu.count=0"}), Contains("platform.gpu.count") && Contains("1 to 8"));
  CHECK_THROWS_WITH(timing({"platform.gpu.count=9"}), Contains("platform.gpu.count") && Contains("1 to 8"));
  CHECK_THROWS_WITH(timing({"platform.gpu.count=4", "workload.batch=3"}),
                    Contains("4 GPUs for a batch of 3") && Contains("a batch of 4 or 3 GPUs would do"));
  CHECK_THROWS_WITH(timing({"platform.gpu.count=4", "workload.mini_batches=2"}),
                    Contains("4 GPUs for 2 mini-batches") && Contains("4 mini-batches or 2 GPUs would do"));
  CHECK_THROWS_WITH(timing({"platform.gpu.count=2", "system.kind=flexgen-ssd"}),
                    Contains("FlexGen's search plans for one GPU") && Contains("policy: given"));
  host::PlannerInputs inputs = setup_of(timing({})).plan;
  inputs.span = {.prefill = true, .first_step = 0, .decode_steps = 5};
  inputs.gpus = 2;
  inputs.mini_batches = 1;
  CHECK_THROWS_WITH(timing({}).system->plan(inputs), Contains("2 GPUs, must be 1 to 1"));
}

}  // namespace test_gpus
