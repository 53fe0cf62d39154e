// The policies that flexgen-ssd chooses, against given ones in the simulator.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "tests/integration/small_platform.h"

namespace test_flexgen_search {

using namespace csdsim;

namespace {

using Sets = std::vector<std::string>;

/// Tokens per second of a run; 0 where the policy does not fit.
double tokens_per_s(const std::string& text, Sets sets, const std::string& system) {
  sets.push_back("system={kind: flexgen-ssd" + system + "}");
  try {
    const auto loaded = experiment::load_scenario_text(text, "flexgen.yaml", CSDSIM_SOURCE_DIR, sets);
    const scenario::Scenario& s = loaded.base.scenario;
    const auto& work = experiment::generation_of(s);
    const host::GenerationTimes times =
        experiment::run_generation(experiment::generation_setup(s, std::vector(work.batch, work.input_tokens))).times;
    return double(work.batch) * work.output_tokens / (times.ttft_s + times.decode_s);
  } catch (const UserError&) {
    return 0;
  }
}

/// The best of: all weights and so many of `heads` KV heads on the GPU, the rest in host memory; the same with all
/// weights in host memory.
double best_given(const std::string& text, const Sets& sets, const std::string& more, std::uint32_t heads) {
  double best = 0;
  for (const char* const weights : {"0", "1"})
    for (std::uint32_t on_gpu = 0; on_gpu <= heads; ++on_gpu)
      best = std::max(best, tokens_per_s(text, sets,
                                         fmt::format(", policy: given, kv_on_gpu: {0}/{2}, kv_on_host: {1}/{2}, "
                                                     "weights_on_host: {3}{4}",
                                                     on_gpu, heads - on_gpu, heads, weights, more)));
  return best;
}

}  // namespace

TEST_CASE("Llama-3-8B with 64 K tokens on 24 GiB: no given policy on GPU and host is faster than the searched one") {
  const std::string text = R"(csdsim: 1
name: flexgen-24gb
model: {preset: llama-3-8b, max_positions: 131072}
platform:
  gpu: {preset: rtx4090}
  host: {preset: desktop-ddr5}
  device: {preset: samsung-980-pro-2tb}
workload: {kind: generation, batch: 4, input_tokens: 16384, output_tokens: 128}
simulation: {data: timing}
)";
  const std::string fused = ", stores_attention_weights: false";
  const double searched = tokens_per_s(text, {}, fused);
  const double on_host = tokens_per_s(text, {}, fused + ", policy: given, kv_on_host: 1");
  CHECK(on_host > 10);  // 13.2 tokens/s while decoding
  CHECK(searched > 3 * on_host);
  CHECK(searched >= best_given(text, {}, fused, 8));
}

TEST_CASE("no given policy on GPU and host is faster than the searched one, on 30 random platforms") {
  const std::string text = test::small_platform("flexgen") +
                           "model: {layers: 6, heads: 8, kv_heads: 4, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
                           "vocab_size: 1000, max_positions: 4096}\n"
                           "workload: {kind: generation, batch: 4, input_tokens: 200, output_tokens: 9}\n"
                           "simulation: {sampling: off}\n";
  Rng rng(2031, "flexgen");
  int in_files = 0, divided = 0;
  for (int trial = 0; trial < 30; ++trial) {
    const auto pick = [&](std::initializer_list<const char*> values) {
      return std::string(*(values.begin() + rng.below(values.size())));
    };
    const Sets sets{"platform.device.nvme.queues=1",
                    "platform.device.nvme.queue_depth=16",
                    "platform.gpu.memory=" + pick({"24 MiB", "32 MiB", "34 MiB", "36 MiB", "38 MiB", "48 MiB"}),
                    "platform.host.memory=" + pick({"12 MiB", "20 MiB", "32 MiB", "64 MiB"}),
                    "platform.gpu.link={bandwidth: " + pick({"1 GB/s", "4 GB/s", "16 GB/s"}) + "}",
                    "platform.gpu.memory_bandwidth=" + pick({"20 GB/s", "500 GB/s"})};
    const std::string kv =
        pick({"", ", kv_bits: 4", ", kv_buffers: 4"}) + pick({"", ", stores_attention_weights: false"});
    CAPTURE(trial, fmt::format("{}", fmt::join(sets, " ")), kv);
    const double searched = tokens_per_s(text, sets, kv), given = best_given(text, sets, kv, 4);
    CHECK(searched > 0);
    CHECK(searched >= given * (1 - 1e-3));
    in_files += given == 0;
    divided += given > 0;
  }
  CHECK(in_files > 3);
  CHECK(divided > 12);
}

}  // namespace test_flexgen_search
