// The division of tokens between host memory and the drive that hillinfer solves, compared with the best of a grid of
// divisions over the simulator itself.
//   test_solved_split "[long]" -s    50 random settings, and the distribution of what is lost
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace test_solved_split {

using namespace csdsim;

namespace {

constexpr std::string_view kScenario = R"(csdsim: 1
name: split
platform:
  gpu: {preset: rtx4090}
  host: {preset: xeon-8352v}
  device:
    preset: smartssd
    flash: {blocks_per_plane: 64, pages_per_block: 64}
    dram: {capacity: 64 MiB}
model: {layers: 2, heads: 8, kv_heads: 8, head_dim: 128, hidden_size: 1024, ffn_size: 2048, vocab_size: 1000, max_positions: 65536}
workload: {kind: generation, batch: 2, input_tokens: 2048, output_tokens: 4, mini_batches: 1}
system: {kind: hillinfer, pinned: 0, kept_hot: 0, prefetch: false}
simulation: {sampling: off}
)";

using Sets = std::vector<std::string>;

/// Time of a decode step, and the shares of each pool that it attended to.
struct Step {
  double seconds = 0, hot = 0, cold = 0;
};

Step run(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  const auto loaded = experiment::load_scenario_text(kScenario, "split.yaml", CSDSIM_SOURCE_DIR, sets);
  const scenario::RunResult result = experiment::run_scenario(loaded.base.scenario);
  REQUIRE(result.failure.empty());
  const auto& metrics = result.document["metrics"];
  return {metrics["decode_step_s"], metrics.value("important_share_of_hot_tokens", 0.0),
          metrics.value("important_share_of_cold_tokens", 0.0)};
}

/// Rates of host and drive from 1:1 to those of the presets, so that splits are anywhere.
Sets setting(Rng& rng) {
  const auto pick = [&](auto... values) {
    const std::vector<std::string> all{values...};
    return all[rng.below(all.size())];
  };
  const auto between = [&](double least, double most) {
    return least * std::pow(most / least, static_cast<double>(rng.below(1001)) / 1000);
  };
  Sets sets{fmt::format("platform.host.memory_bandwidth={:.2f} GB/s", between(4, 100)),
            fmt::format("platform.gpu.link={{bandwidth: {:.2f} GB/s}}", between(2, 28)),
            fmt::format("platform.device.nvme.transfer={}", pick("p2p", "host")),
            fmt::format("workload.input_tokens={}", pick("1024", "2048", "4096")),
            fmt::format("workload.batch={}", pick("1", "2", "4")),
            fmt::format("system.ratio={}", pick("1/20", "1/10", "1/5", "2/5")),
            fmt::format("system.chunk={}", pick("256", "1024", "4096")),
            fmt::format("platform.device.flash.channels={}", pick("4", "8", "16"))};
  if (rng.below(2) == 0) {
    sets.emplace_back("platform.device.engine.placement={kind: controllers}");
  } else {
    const double bandwidth = between(1.6, 8);
    sets.push_back(
        fmt::format("platform.device.engine.placement={{kind: switch, command_time: 0 us, bandwidth: {:.2f} GB/s, "
                    "request_bandwidth: {:.2f} GB/s}}",
                    bandwidth, 0.75 * bandwidth));
  }
  return sets;
}

/// What the solved split loses against the best of a grid of eleven and itself: 0.01 is a percent.
double loss_of(const Sets& sets, const Sets& solving) {
  const Step solved = run(sets, solving);
  double best = solved.seconds;
  for (int tenth = 0; tenth <= 10; ++tenth)
    best = std::min(best, run(sets, {fmt::format("system.host_share={} %", 10 * tenth)}).seconds);
  return solved.seconds / best - 1;
}

}  // namespace

TEST_CASE("the solved split is near the best of a grid over the simulator") {
  Rng rng(4, "split");
  for (int i = 0; i < 2; ++i) {
    const Sets sets = setting(rng);
    CAPTURE(i, fmt::format("{}", fmt::join(sets, " ")));
    CHECK(loss_of(sets, {}) < 0.25);
  }
}

TEST_CASE("how near the solved split is to the best of a grid, for 50 random settings", "[.][long]") {
  Rng rng(4, "split");
  std::vector<double> plain, corrected;
  for (int i = 0; i < 50; ++i) {
    const Sets sets = setting(rng);
    const Step first = run(sets, {});
    // The shares that the first run measured, in place of the same for both sides.
    const Sets measured{fmt::format("system.important_hot={:.3f}", std::clamp(first.hot, 0.001, 1.0)),
                        fmt::format("system.important_cold={:.3f}", std::clamp(first.cold, 0.001, 1.0))};
    plain.push_back(loss_of(sets, {}));
    corrected.push_back(loss_of(sets, measured));
    std::cout << fmt::format("{:2} {:6.2f} % {:6.2f} %  hot {:.3f} cold {:.3f}  {}\n", i, 100 * plain.back(),
                             100 * corrected.back(), first.hot, first.cold, fmt::join(sets, " "));
  }
  for (std::vector<double>* const losses : {&plain, &corrected}) {
    std::ranges::sort(*losses);
    const auto at = [&](double share) { return 100 * (*losses)[static_cast<std::size_t>(share * 49)]; };
    std::cout << fmt::format("{}: median {:.2f} %, three quarters {:.2f} %, nine tenths {:.2f} %, largest {:.2f} %\n",
                             losses == &plain ? "equal shares" : "measured shares", at(0.5), at(0.75), at(0.9), at(1));
  }
  // What equation 2 leaves out weighs most where K and V are small, as here: see docs/score_or_attend.md.
  CHECK(plain[25] < 0.5);
}

}  // namespace test_solved_split
