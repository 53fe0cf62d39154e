// KVPR and Hugging Face Accelerate from scenarios: tokens, closed forms of time, hiding, bad input.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/runner.h"
#include "host_runtime/core/systems/kvpr/split.h"
#include "tests/integration/small_platform.h"

namespace test_kvpr_runs {

using namespace csdsim;

namespace {

using Sets = std::vector<std::string>;

const std::string kPlatform = test::small_platform("kvpr");

scenario::Scenario load(const std::string& text, const Sets& sets) {
  return experiment::load_scenario_text(text, "kvpr.yaml", CSDSIM_SOURCE_DIR, sets).base.scenario;
}

/// Without grouped queries; K and V of a token and layer take 2 KiB, its activations 1 KiB.
scenario::Scenario timing(Sets sets) {
  return load(kPlatform +
                  "model: {layers: 6, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
                  "vocab_size: 1000, max_positions: 4096}\n"
                  "workload: {kind: generation, batch: 4, input_tokens: 1000, output_tokens: 9, mini_batches: 1}\n"
                  "simulation: {sampling: off}\n",
              sets);
}

experiment::GenerationOutcome run(const Sets& sets) {
  const scenario::Scenario s = timing(sets);
  const auto& workload = experiment::generation_of(s);
  return experiment::run_generation(
      experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens)));
}

void check_carried(const std::string& model, const Sets& sets, bool same_bits) {
  const scenario::Scenario s = load(kPlatform + "model: {path: models/" + model +
                                        "}\n"
                                        "workload: {kind: generation, batch: 3, input_tokens: 60, output_tokens: 12}\n"
                                        "simulation: {data: carried, compare: [host]}\n",
                                    sets);
  const scenario::RunResult result = experiment::run_scenario(s);
  CHECK(result.failure.empty());
  const auto& compared = result.document["comparison"]["host"];
  CHECK(compared["tokens_equal"] == 36);
  // The backend rounds a product of another number of rows differently: only all rows, or none, repeat the bits.
  if (same_bits) CHECK(compared["attention_outputs_identical"] == true);
}

/// A slow link and a GPU whose rates the closed forms know: no launches, full efficiency.
Sets slow(std::string system) {
  return {"system=" + std::move(system),     "platform.gpu.link={bandwidth: 1 GB/s}",
          "platform.gpu.fp16_rate=2 TFLOPS", "platform.gpu.efficiency.gemm=100 %",
          "platform.gpu.kernel_launch=0 ns", "platform.gpu.memory_bandwidth=10 TB/s"};
}

}  // namespace

TEST_CASE("carried runs make the tokens of dense attention, whatever is recomputed") {
  for (const char* const model : {"opt-6m", "llama-gqa-6m"})
    for (const char* const parameters : {"recomputed_share: 0 %", "recomputed_share: 50 %", "recomputed_share: 100 %",
                                         "activations: gpu, recomputed_share: 70 %",
                                         "weights_on_host: 100 %, recomputed_share: 30 %", "split_step: 8"}) {
      CAPTURE(model, parameters);
      const bool all_or_none = std::string(parameters).starts_with("recomputed_share: ") &&
                               std::string(parameters) != "recomputed_share: 50 %";
      check_carried(model, {std::string("system={kind: kvpr, ") + parameters + "}"}, all_or_none);
    }
  check_carried("opt-6m", {"system={kind: kvpr, recomputed_share: 40 %}", "workload.mini_batches=3"}, false);
  check_carried("opt-6m", {"system.kind=hf-accelerate"}, true);
}

TEST_CASE("a decode step takes what the split's equation says where the link is slow") {
  const host::SplitCosts costs{.activations = Bytes{1024}, .kv = Bytes{2048}, .flops = 4 * 512 * 512};
  const host::SplitRates rates{.link = Bandwidth{1'000'000'000}, .gemm = {2'000'000'000'000}};
  // The GPU has little to do besides, and copies run ahead of it: the link is never idle, and decides.
  double expected = 0, copied = 0;
  for (std::uint64_t step = 0; step < 8; ++step) {
    const std::uint64_t tokens = 4 * (1000 + step), split = host::split_point(costs, rates, tokens, 4000);
    CHECK(split > 500);
    expected += 6e-9 * static_cast<double>(1024 * split + 2048 * (tokens - split));
    copied += 6e-9 * static_cast<double>(2048 * tokens);
  }
  // Two buffers are filled during the prefill: two of the 48 layers of all steps.
  const double in_decode = 46.0 / 48;
  const double kvpr = run(slow("{kind: kvpr}")).times.decode_s;
  const double accelerate = run(slow("{kind: hf-accelerate}")).times.decode_s;
  CHECK(kvpr == Approx(expected * in_decode).epsilon(0.01));
  CHECK(accelerate == Approx(copied * in_decode).epsilon(0.01));
  CHECK(accelerate / kvpr > 1.5);
  CHECK(accelerate / kvpr <= host::most_split_gain(costs, rates));
}

TEST_CASE("the solved split is at least as good as fixed shares") {
  const double solved = run(slow("{kind: kvpr, kv_buffers: 1}")).times.decode_s;
  for (const char* const share : {"0 %", "20 %", "40 %", "60 %", "80 %", "100 %"}) {
    CAPTURE(share);
    const double fixed =
        run(slow(std::string("{kind: kvpr, kv_buffers: 1, recomputed_share: ") + share + "}")).times.decode_s;
    CHECK(solved <= fixed * 1.01);
  }
}

TEST_CASE("hiding is never slower, and a faster link never makes a run slower") {
  for (const char* const weights : {"25 %", "100 %"}) {
    double last = 1e9;
    for (const char* const link : {"1 GB/s", "4 GB/s", "16 GB/s", "64 GB/s"}) {
      CAPTURE(weights, link);
      const auto decode = [&](const std::string& hides) {
        Sets sets =
            slow(std::string("{kind: kvpr, weights_on_host: ") + weights + ", hides_recomputation: " + hides + "}");
        sets[1] = std::string("platform.gpu.link={bandwidth: ") + link + ", latency: 0 ns}";
        return run(sets).times.decode_s;
      };
      const double hidden = decode("true");
      CHECK(hidden <= decode("false") * (1 + 1e-9));
      CHECK(hidden <= last);
      last = hidden;
    }
  }
}

TEST_CASE("software time adds up over the steps where nothing overlaps with it") {
  const auto decode = [](const std::string& software) {
    return run({"system={kind: hf-accelerate, kv_buffers: 1" + software + "}"}).times.decode_s;
  };
  const double without = decode("");
  // The copy of the first layer runs during the software's time.
  CHECK(decode(", software_per_step: 20 ms") == Approx(without + 8 * 0.020).epsilon(0.02));
}

TEST_CASE("parameters of KVPR that cannot be") {
  const auto fails = [](const std::string& system, const std::string& with) {
    CAPTURE(system);
    CHECK_THROWS_WITH(timing({"system=" + system}), Catch::Matchers::Contains(with));
  };
  fails("{kind: kvpr, recomputed_share: 1.2}", "recomputed_share");
  fails("{kind: kvpr, split_step: 0}", "split_step");
  fails("{kind: kvpr, hides_recomputation: false}", "all weights stay in GPU memory");
  CHECK_THROWS_WITH(timing({"system={kind: kvpr}", "platform.host.memory=40 MiB"}),
                    Catch::Matchers::Contains("memory"));
}

}  // namespace test_kvpr_runs
