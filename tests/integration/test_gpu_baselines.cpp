// The rivals of KVPR on several GPUs that share a host: DeepSpeed, Accelerate, FlexGen and attention on the host's
// cores (FastDecode). Bytes on the links and time against closed forms.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/runner.h"
#include "tests/integration/small_platform.h"

namespace test_gpu_baselines {

using namespace csdsim;

namespace {

using Sets = std::vector<std::string>;

constexpr std::uint64_t kLayers = 6, kPrompt = 500, kSteps = 8, kSequences = 2;  // sequences of each GPU

const std::string kPlatform = test::small_platform("baselines");

scenario::Scenario load(const std::string& text, const Sets& sets) {
  return experiment::load_scenario_text(text, "baselines.yaml", CSDSIM_SOURCE_DIR, sets).base.scenario;
}

/// Each GPU has a mini-batch of kSequences. K and V of a token and layer take 2 KiB.
scenario::Scenario scenario_of(std::uint32_t gpus, const std::string& system, const Sets& more) {
  Sets sets{"system=" + system, fmt::format("platform.gpu.count={}", gpus),
            fmt::format("workload.batch={}", kSequences * gpus), fmt::format("workload.mini_batches={}", gpus)};
  sets.insert(sets.end(), more.begin(), more.end());
  return load(kPlatform +
                  "model: {layers: 6, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
                  "vocab_size: 1000, max_positions: 4096}\n"
                  "workload: {kind: generation, input_tokens: 500, output_tokens: 9}\n"
                  "simulation: {sampling: off}\n",
              sets);
}

experiment::GenerationOutcome run(std::uint32_t gpus, const std::string& system, const Sets& more) {
  const scenario::Scenario s = scenario_of(gpus, system, more);
  const auto& workload = experiment::generation_of(s);
  return experiment::run_generation(
      experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens)));
}

Sets link_of(const std::string& bandwidth) {
  return {"platform.gpu.link={bandwidth: " + bandwidth + ", latency: 0 ns}", "platform.gpu.memory_bandwidth=10 TB/s"};
}

/// Bytes on the links of one GPU.
struct LinkBytes {
  double weights = 0;  ///< bytes of a step
  double kept = 0, made = 0, copied = 0;
};

LinkBytes bytes() {
  const host::ModelShape model = scenario_of(1, "{kind: host-kv}", {}).model.shape();
  const double token = 2048.0 * kLayers;
  LinkBytes b{.weights = static_cast<double>(model.layer_weight_bytes().value * kLayers),
              .kept = token * kSequences * kPrompt,
              .made = token * kSequences * kSteps};
  for (std::uint64_t step = 0; step < kSteps; ++step)
    b.copied += token * static_cast<double>(kSequences * (kPrompt + step));
  return b;
}

const char* const kDeepSpeed = "{kind: deepspeed-host, kv: gpu}";
const char* const kDeepSpeedPinned = "{kind: deepspeed-host, kv: pinned}";
const char* const kFlexGen = "{kind: host-kv, weights_on_host: 100 %}";
const char* const kAccelerate = "{kind: hf-accelerate}";
const char* const kFastDecode = "{kind: host-kv, attention: host}";

}  // namespace

TEST_CASE("the links of all GPUs carry the bytes of closed forms") {
  const LinkBytes b = bytes();
  const double passes = 1 + kSteps;
  const double query = 2.0 * 2 * 512 * kLayers * kSequences * kSteps;  // to the host, and outputs back
  const struct {
    const char* system;
    double of_gpu;
  } systems[] = {{kDeepSpeed, passes * b.weights},
                 {kDeepSpeedPinned, passes * b.weights + b.kept + b.made + b.copied},
                 {kFlexGen, passes * b.weights + b.kept + b.made + b.copied},
                 {kAccelerate, b.kept + b.made + b.copied},
                 {kFastDecode, b.kept + b.made + query}};
  for (const std::uint32_t gpus : {1U, 2U, 4U, 8U})
    for (const auto& [system, of_gpu] : systems) {
      CAPTURE(gpus, system);
      const experiment::GenerationOutcome out = run(gpus, system, {});
      CHECK(out.prefill.gpu_link_bytes + out.decode.gpu_link_bytes == gpus * of_gpu);
    }
}

TEST_CASE("every GPU streams its weights over a link of its own, until the root complex is the limit") {
  const LinkBytes b = bytes();
  // The link is never idle: it copies the weights of the next step's first layers when those of a step are there.
  for (const std::uint32_t gpus : {1U, 3U, 8U}) {
    CAPTURE(gpus);
    CHECK(run(gpus, kDeepSpeed, link_of("1 GB/s")).times.decode_s == Approx(kSteps * b.weights / 1e9).epsilon(0.02));
    Sets shared = link_of("1 GB/s");
    shared.push_back("platform.root_complex.bandwidth=500 MB/s");
    CHECK(run(gpus, kDeepSpeed, shared).times.decode_s == Approx(gpus * kSteps * b.weights / 0.5e9).epsilon(0.02));
  }
}

TEST_CASE("copies of K and V, with those of weights, share the root complex, too") {
  const LinkBytes b = bytes();
  const struct {
    const char* system;
    double to_gpu;  ///< bytes of the decode steps, for each GPU
  } systems[] = {{kAccelerate, b.copied}, {kFlexGen, kSteps * b.weights + b.copied}};
  for (const auto& [system, to_gpu] : systems)
    for (const std::uint32_t gpus : {1U, 2U, 4U, 8U}) {
      CAPTURE(system, gpus);
      CHECK(run(gpus, system, link_of("1 GB/s")).times.decode_s == Approx(to_gpu / 1e9).epsilon(0.05));
      Sets shared = link_of("1 GB/s");
      shared.push_back("platform.root_complex.bandwidth=900 MB/s");
      CHECK(run(gpus, system, shared).times.decode_s == Approx(gpus * to_gpu / 0.9e9).epsilon(0.05));
    }
}

TEST_CASE("GPUs share the host's memory where its cores attend") {
  const LinkBytes b = bytes();
  Sets sets = link_of("20 GB/s");
  for (const char* const of_host :
       {"platform.host.memory_bandwidth=1 GB/s", "platform.host.efficiency=100 %", "platform.host.core_rate=10 TFLOPS"})
    sets.emplace_back(of_host);
  // K and V of all tokens, the new ones included, and queries and outputs.
  const double attended = b.copied + b.made + 2.0 * 2 * 512 * kLayers * kSequences * kSteps;
  for (const std::uint32_t gpus : {2U, 4U, 8U}) {
    CAPTURE(gpus);
    const experiment::GenerationOutcome out = run(gpus, kFastDecode, sets);
    CHECK(out.decode.of(host::ResourceKind::host).busy_s == Approx(gpus * attended / 1e9).epsilon(0.01));
    CHECK(out.times.decode_s == Approx(gpus * attended / 1e9).epsilon(0.05));
  }
}

TEST_CASE("copies of weights and attention on the host's cores share host memory") {
  const LinkBytes b = bytes();
  const double attended = b.copied + b.made + 2.0 * 2 * 512 * kLayers * kSequences * kSteps;
  for (const std::uint32_t gpus : {2U, 4U, 8U}) {
    CAPTURE(gpus);
    Sets sets = link_of("1 GB/s");
    for (const char* const of_host : {"platform.host.memory_bandwidth=1.5 GB/s", "platform.host.efficiency=100 %",
                                      "platform.host.core_rate=10 TFLOPS"})
      sets.emplace_back(of_host);
    const double decode = run(gpus, "{kind: host-kv, attention: host, weights_on_host: 100 %}", sets).times.decode_s;
    CHECK(decode == Approx(gpus * (kSteps * b.weights + attended) / 1.5e9).epsilon(0.08));
  }
}

TEST_CASE("copies and the host's cores together are no faster than host memory") {
  const LinkBytes b = bytes();
  // Links of 1 GB/s copy K and V to the GPUs, the memory carries 1.5 GB/s.
  for (const std::uint32_t gpus : {1U, 2U, 4U, 8U}) {
    CAPTURE(gpus);
    Sets sets = link_of("1 GB/s");
    sets.emplace_back("platform.host.memory_bandwidth=1.5 GB/s");
    const double of_link = b.copied / 1e9, of_memory = gpus * (b.copied + b.made) / 1.5e9;
    const double decode = run(gpus, kAccelerate, sets).times.decode_s;
    CHECK(decode == Approx(std::max(of_link, of_memory)).epsilon(0.05));
    // The root complex is slower than the memory: it is the limit.
    sets.emplace_back("platform.root_complex.bandwidth=900 MB/s");
    CHECK(run(gpus, kAccelerate, sets).times.decode_s == Approx(gpus * b.copied / 0.9e9).epsilon(0.05));
    // It carries a GB/s in each direction, which the memory has not got for both where copies are in both.
    sets.back() = "platform.root_complex.bandwidth=2 GB/s";
    CHECK(run(gpus, kAccelerate, sets).times.decode_s == Approx(std::max(of_link, of_memory)).epsilon(0.06));
  }
}

TEST_CASE("KVPR, Accelerate and DeepSpeed keep their order, with any number of GPUs") {
  for (const std::uint32_t gpus : {1U, 2U, 4U, 8U}) {
    CAPTURE(gpus);
    const auto decode = [&](const std::string& system) { return run(gpus, system, link_of("4 GB/s")).times.decode_s; };
    const double kvpr = decode("{kind: kvpr}"), accelerate = decode(kAccelerate);
    const double deepspeed = decode("{kind: deepspeed-host, kv: pinned, weights_on_host: 0 %, kv_buffers: 1}");
    CHECK(kvpr < accelerate);
    CHECK(accelerate <= deepspeed);
    CHECK(decode("{kind: kvpr, weights_on_host: 100 %}") < decode(kFlexGen));
    CHECK(decode(kDeepSpeedPinned) >= accelerate);
  }
}

TEST_CASE("GPUs beyond the lanes of the host are refused, and those behind a switch need none") {
  const auto lanes = [](std::uint32_t gpus, const Sets& more) {
    Sets sets{"platform.host.gpu_lanes=64"};
    sets.insert(sets.end(), more.begin(), more.end());
    return scenario_of(gpus, kAccelerate, sets);
  };
  CHECK_NOTHROW(lanes(4, {}));
  CHECK_THROWS_WITH(lanes(5, {}),
                    Catch::Contains("5 GPUs of 16 lanes each need 80 PCIe lanes") && Catch::Contains("at most 4 GPUs"));
  CHECK_NOTHROW(lanes(8, {"platform.gpu.link={generation: 4, lanes: 8}"}));
  CHECK_THROWS_WITH(lanes(5, {"platform.gpu.link={bandwidth: 20 GB/s}"}), Catch::Contains("5 GPUs of 16 lanes"));
  CHECK_NOTHROW(lanes(5, {"platform.switch={gpus: 1}"}));
}

TEST_CASE("DeepSpeed's memory has to hold K and V where they are not swapped") {
  CHECK_THROWS_WITH(scenario_of(1, kDeepSpeedPinned, {"platform.host.memory=20 MiB"}),
                    Catch::Contains("platform.host.memory"));
  CHECK_THROWS_WITH(scenario_of(1, kDeepSpeed, {"platform.gpu.memory=15 MiB"}), Catch::Contains("platform.gpu.memory"));
  CHECK_THROWS_WITH(scenario_of(1, "{kind: deepspeed-host, kv: gpu, rewrites_cache: false}", {}),
                    Catch::Contains("system.rewrites_cache is not used"));
}

}  // namespace test_gpu_baselines
