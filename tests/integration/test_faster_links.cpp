// A faster link between host and GPU on random platforms: whole runs of every system that recomputes K and V, copies
// them, or has them attended to elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "experiment/experiments.h"
#include "tests/integration/small_platform.h"
#include "tests/integration/step_time.h"

namespace test_faster_links {

using namespace csdsim;
using namespace csdsim::test;

namespace {

using Sets = std::vector<std::string>;

/// What may make a run with a faster link slower, and by how much at most.
enum class Slower : std::uint8_t {
  in_another_order,  ///< operations of several mini-batches start in another order
  pages_mix,         ///< pages of activations and of K and V in the drives, too, wait for planes in another order
  another_division,  ///< the tokens are divided anew for each link; each division is within 2 % of the best
  copies_beside,     ///< copies take host memory from the cores that attend
};

struct System {
  std::string name, parameters;
  Slower slower;
  bool drives = false;  ///< attend
};

const std::vector<System>& systems() {
  static const std::vector<System> all{
      {"kvpr, row by row", "{kind: kvpr}", Slower::in_another_order},
      {"kvpr, row by row, fixed", "{kind: kvpr, recomputed_share: 0.4}", Slower::in_another_order},
      {"kvpr, row by row, activations on the GPU", "{kind: kvpr, activations: gpu}", Slower::in_another_order},
      {"kvpr, column by column", "{kind: kvpr, weights_on_host: 100 %}", Slower::in_another_order},
      {"kvpr, not hidden", "{kind: kvpr, weights_on_host: 100 %, hides_recomputation: false}",
       Slower::in_another_order},
      {"flexgen", "{kind: host-kv, weights_on_host: 100 %}", Slower::in_another_order},
      {"flexgen, searched", "{kind: flexgen-ssd}", Slower::in_another_order},
      {"fastdecode", "{kind: host-kv, attention: host}", Slower::copies_beside},
      {"fastdecode, weights on the host", "{kind: host-kv, attention: host, weights_on_host: 100 %}",
       Slower::copies_beside},
      {"hf-accelerate", "{kind: hf-accelerate}", Slower::in_another_order},
      {"deepspeed, pinned", "{kind: deepspeed-host, kv: pinned}", Slower::in_another_order},
      {"deepspeed, on the GPU", "{kind: deepspeed-host, kv: gpu}", Slower::in_another_order},
      {"deepspeed, swapped", "{kind: deepspeed-host}", Slower::copies_beside},
      {"hilos", "{kind: hilos, x_cache: 40 %, write_back_tokens: 4}", Slower::in_another_order, true},
      {"hilos, solved", "{kind: hilos, write_back_tokens: 4}", Slower::another_division, true},
      {"hybrid, solved", "{kind: hybrid, write_back_tokens: 4}", Slower::another_division, true},
      {"hybrid", "{kind: hybrid, recomputed_share: 0.3, gpu_share: 0.1, host_share: 0.3, write_back_tokens: 4}",
       Slower::in_another_order, true},
      {"hybrid, activations in the drives",
       "{kind: hybrid, recomputed_share: 0.3, gpu_share: 0.1, host_share: 0.3, activations: drives, "
       "write_back_tokens: 4}",
       Slower::pages_mix, true},
  };
  return all;
}

struct Setting {
  Sets sets;
  std::uint32_t mini_batches = 1;
  double rate = 0, faster = 0;  ///< rates of the link, GB/s
  double memory = 0;            ///< host memory, GB/s
};

Setting setting(Rng& rng, const System& system) {
  const auto pick = [&](auto... values) {
    const std::vector<std::string> all{values...};
    return all[rng.below(all.size())];
  };
  const auto between = [&](double least, double most) {
    return least * std::pow(most / least, static_cast<double>(rng.below(1001)) / 1000);
  };
  Setting s;
  s.mini_batches = static_cast<std::uint32_t>(1 + rng.below(3));
  s.rate = between(0.5, 32), s.faster = s.rate * between(1.05, 8);
  s.memory = between(5, 200);
  s.sets = {"system=" + system.parameters,
            "platform.device.flash.program_latency=20 us",
            "model.layers=" + pick("2", "3", "4", "6"),
            "model.kv_heads=" + pick("8", "8", "4", "2"),
            "workload.batch=" + pick("4", "6"),
            fmt::format("workload.mini_batches={}", s.mini_batches),
            fmt::format("workload.input_tokens={}", 50 + rng.below(system.drives ? 800 : 2000)),
            fmt::format("workload.output_tokens={}", 6 + rng.below(10)),
            fmt::format("platform.gpu.fp16_rate={:.3f} TFLOPS", between(1, 150)),
            fmt::format("platform.gpu.memory_bandwidth={:.1f} GB/s", between(20, 1500)),
            fmt::format("platform.host.memory_bandwidth={:.1f} GB/s", s.memory),
            "platform.host.efficiency=" + pick("25 %", "100 %"),
            fmt::format("platform.host.core_rate={:.1f} GFLOPS", between(5, 1000))};
  if (system.drives) s.sets.push_back("platform.device.count=" + pick("1", "2", "3"));
  // With dynamic allocation the pages of activations are on other planes with another link (test_step_times).
  if (system.parameters.find("activations: drives") != std::string::npos)
    s.sets.push_back("platform.device.ftl.allocation=static");
  return s;
}

/// Seconds of a whole run, and the time in which host memory carries what crosses the link.
struct Run {
  double seconds = 0, copied = 0;
};

Run run(const Setting& setting, double rate) {
  Sets sets = setting.sets;
  sets.push_back(fmt::format("platform.gpu.link={{bandwidth: {:.3f} GB/s, latency: 0 ns}}", rate));
  const scenario::Scenario s =
      experiment::load_scenario_text(
          small_platform("links") +
              "model: {layers: 4, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
              "vocab_size: 1000, max_positions: 4096}\n"
              "workload: {kind: generation, batch: 4, input_tokens: 1000, output_tokens: 9, mini_batches: 1}\n"
              "simulation: {sampling: off}\n",
          "links.yaml", CSDSIM_SOURCE_DIR, sets)
          .base.scenario;
  Run result;
  experiment::GenerationHooks hooks;
  hooks.operation = [&](const host::OperationRecord& r) {
    using enum host::ResourceKind;
    if (r.kind == host::OpKind::sample) result.seconds = std::max(result.seconds, r.end.seconds());
    if (r.resource.kind == host_to_gpu || r.resource.kind == gpu_to_host)
      result.copied += static_cast<double>(r.moved.value) / (setting.memory * 1e9);
  };
  const auto& workload = experiment::generation_of(s);
  experiment::run_generation(experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens)),
                             hooks);
  return result;
}

/// On 120 random platforms per system, 1.2 % was the largest (docs/kvpr.md).
constexpr double kOtherOrder = 0.02;
/// On 40 random platforms with one mini-batch, 0.045 % was the largest; with dynamic allocation it was 2.9 %.
constexpr double kPagesMix = 1e-3;

}  // namespace

TEST_CASE(
    "a faster link makes no run slower than the order of mini-batches, the division and shared host memory explain") {
  for (const System& system : systems())
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      Rng rng(seed, "links");
      const Setting s = setting(rng, system);
      const Run slow = run(s, s.rate), fast = run(s, s.faster);
      double bound = slow.seconds * (1 + (system.slower == Slower::pages_mix ? kPagesMix : 1e-9));
      if (s.mini_batches > 1 || system.slower == Slower::another_division) bound = slow.seconds * (1 + kOtherOrder);
      if (system.slower == Slower::copies_beside) bound += fast.copied;
      INFO("seed " << seed << ", " << system.name << ", " << s.mini_batches << " mini-batches, " << s.rate << " to "
                   << s.faster << " GB/s: " << slow.seconds << " and " << fast.seconds << " s");
      CHECK(fast.seconds <= bound);
    }
}

}  // namespace test_faster_links
