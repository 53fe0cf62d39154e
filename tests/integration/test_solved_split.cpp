// The division of tokens between host memory and the drive that hillinfer solves, compared with the best of a grid of
// divisions over the simulator itself.
//   test_integration "[long]" -s     50 random settings, and the distribution of what is lost
//   test_integration "[terms]" -s    what five of them take in the simulator, beside what splits are solved from
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "host_runtime/core/planner/systems/hillinfer/hillinfer.h"
#include "host_runtime/core/tokens/token_locality.h"

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
workload: {kind: generation, batch: 2, input_tokens: 2048, output_tokens: 18, mini_batches: 1}
system: {kind: hillinfer, pinned: 0, kept_hot: 0, prefetch: false}
simulation: {sampling: off}
)";

using Sets = std::vector<std::string>;

/// Means over the layers and the decode steps but the first, in which the drive still programs pages of the prompt. 16
/// steps remain: a page of K and one of V are programmed per sequence and head.
struct Step {
  double seconds = 0;     ///< of a step
  host::StepTimes parts;  ///< of a layer
};

experiment::GenerationSetup setup_of(const Sets& sets) {
  const auto loaded = experiment::load_scenario_text(kScenario, "split.yaml", CSDSIM_SOURCE_DIR, sets);
  const scenario::Scenario& s = loaded.base.scenario;
  const auto& workload = experiment::generation_of(s);
  experiment::GenerationSetup setup =
      experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens));
  setup.sources.tokens = [] { return std::make_unique<host::TokenLocalityModel>(host::TokenLocalityParams{}, 1); };
  return setup;
}

Step run(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  const experiment::GenerationSetup setup = setup_of(sets);
  std::map<std::uint32_t, double> ends;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<double, double>> scored;  // by step and layer
  Step step;
  experiment::GenerationHooks hooks;
  hooks.operation = [&](const host::OperationRecord& r) {
    if (r.tag.phase != host::Phase::decode) return;
    ends[r.tag.step] = std::max(ends[r.tag.step], r.kind == host::OpKind::sample ? r.end.seconds() : 0);
    if (r.tag.step == 0 || !r.tag.layer) return;
    const double time = (r.end - r.start).seconds();
    const bool drive = r.resource.kind == host::ResourceKind::drive_kv;
    host::StepTimes& parts = step.parts;
    if (r.kind == host::OpKind::score_kv && drive && time > 0) {
      auto& [from, to] = scored.try_emplace({r.tag.step, r.tag.layer->value}, r.start.seconds(), 0.0).first->second;
      from = std::min(from, r.start.seconds());
      to = std::max(to, r.end.seconds());
    }
    if (r.kind == host::OpKind::score_kv && !drive) parts.host_scores += time;
    if (r.kind == host::OpKind::select_tokens || r.kind == host::OpKind::merge_scores) parts.choice += time;
    if (r.kind == host::OpKind::gather_kv) parts.gather += time;
    if (r.kind == host::OpKind::fetch_kv) parts.fetch += time;
    if (r.resource.kind == host::ResourceKind::host_to_gpu) parts.copy += time;
  };
  experiment::run_generation(setup, hooks);
  for (const auto& [layer, range] : scored) step.parts.drive_scores += range.second - range.first;
  const double steps = static_cast<double>(ends.size()) - 1, layers = 2 * steps;
  for (double host::StepTimes::*const part :
       {&host::StepTimes::host_scores, &host::StepTimes::drive_scores, &host::StepTimes::choice,
        &host::StepTimes::gather, &host::StepTimes::copy, &host::StepTimes::fetch})
    step.parts.*part /= layers;
  step.seconds = (ends.rbegin()->second - ends.begin()->second) / steps;
  return step;
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

/// The pages of the SmartSSD, and a quarter of them.
const std::map<std::string, Sets> kPages{
    {"pages of 16 KiB", {}},
    {"pages of 4 KiB",
     {"platform.device.flash.page_size=4 KiB", "platform.device.flash.codewords={size: 4 KiB, parity: 0 B, spare: 0 B}",
      "platform.device.flash.program_latency=500 us"}}};

Sets with(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

/// What solved splits lose against the best of a grid of `points` and themselves: 0.01 is a percent.
std::vector<double> losses_of(const Sets& sets, int points, const std::vector<Sets>& solving) {
  std::vector<double> times;
  for (const Sets& how : solving) times.push_back(run(sets, how).seconds);
  double best = *std::ranges::min_element(times);
  for (int i = 0; i < points; ++i)
    best = std::min(best, run(sets, {fmt::format("system.host_share={} %", 100 * i / (points - 1))}).seconds);
  for (double& time : times) time = time / best - 1;
  return times;
}

}  // namespace

TEST_CASE("the solved split is near the best of a grid over the simulator") {
  const auto& [name, pages] = *std::next(kPages.begin(), GENERATE(0, 1));
  Rng rng(4, "split");
  for (int i = 0; i < 3; ++i) {
    const Sets sets = with(setting(rng), pages);
    CAPTURE(name, i, fmt::format("{}", fmt::join(sets, " ")));
    CHECK(losses_of(sets, 6, {{}}).front() < 0.05);
  }
}

TEST_CASE("the times that a split is solved from are those of the simulator", "[terms]") {
  const auto& [name, pages] = *std::next(kPages.begin(), GENERATE(0, 1));
  std::cout << name << "\n";
  Rng rng(5, "split");
  for (int i = 0; i < 5; ++i) {
    const Sets sets = with(setting(rng), pages);
    for (const int percent : {30, 60, 90}) {
      const Step step = run(sets, {fmt::format("system.host_share={} %", percent)});
      const experiment::GenerationSetup setup = setup_of(sets);
      const auto& system = dynamic_cast<const host::Hillinfer&>(*setup.system);
      const std::uint64_t tokens = setup.plan.workload.longest_sequence();
      const host::StepTimes times =
          step_times(system.divided_step(setup.plan.model, setup.plan.workload, tokens), tokens * percent / 100);
      const host::StepTimes& found = step.parts;
      const std::string terms = fmt::format(
          "{} {} %, us, expected/simulated: scores of the host {:.0f}/{:.0f}, of the drive {:.0f}/{:.0f}, choice "
          "{:.0f}/{:.0f}, gather {:.0f}/{:.0f}, copies {:.0f}/{:.0f}, fetch {:.0f}/{:.0f}, waits for stored ones "
          "{:.0f}; layer {:.0f}, step {:.0f}",
          i, percent, 1e6 * times.host_scores, 1e6 * found.host_scores, 1e6 * times.drive_scores,
          1e6 * found.drive_scores, 1e6 * times.choice, 1e6 * found.choice, 1e6 * times.gather, 1e6 * found.gather,
          1e6 * (times.copy + times.staged), 1e6 * found.copy, 1e6 * times.fetch, 1e6 * found.fetch,
          1e6 * times.storing.share * times.storing.seconds, 1e6 * times.total(), 1e6 * step.seconds);
      CAPTURE(fmt::format("{}", fmt::join(sets, " ")), terms);
      std::cout << terms << "\n";
      CHECK(times.host_scores == Approx(found.host_scores).epsilon(0.05));
      // Reads wait for pages of demoted tokens that are programmed, those of scores or those of fetches.
      const double waits = times.storing.share * times.storing.seconds;
      CHECK(found.drive_scores > 0.65 * times.drive_scores);
      CHECK(found.drive_scores < 1.35 * (times.drive_scores + waits));
      CHECK(found.fetch > 0.65 * times.fetch);
      CHECK(found.fetch < 1.35 * (times.fetch + waits));
      CHECK(times.gather == Approx(found.gather).epsilon(0.1));
      // Rows that come from the drive directly share the GPU's link, at times while hot rows cross it.
      CHECK(times.copy + times.staged == Approx(found.copy).epsilon(0.35));
    }
  }
}

TEST_CASE("how near the solved split is to the best of a grid, for 50 random settings", "[.][long]") {
  const auto& [name, pages] = *std::next(kPages.begin(), GENERATE(0, 1));
  std::cout << name << "\n";
  Rng rng(4, "split");
  std::vector<double> times, equation;
  for (int i = 0; i < 50; ++i) {
    const Sets sets = with(setting(rng), pages);
    const std::vector<double> losses = losses_of(sets, 11, {{}, {"system.split=equation"}});
    times.push_back(losses[0]);
    equation.push_back(losses[1]);
    std::cout << fmt::format("{:2} {:6.2f} % {:6.2f} %  {}\n", i, 100 * losses[0], 100 * losses[1],
                             fmt::join(sets, " "));
  }
  for (std::vector<double>* const losses : {&times, &equation}) {
    std::ranges::sort(*losses);
    const auto at = [&](double share) { return 100 * (*losses)[static_cast<std::size_t>(share * 49)]; };
    std::cout << fmt::format("{}: median {:.2f} %, three quarters {:.2f} %, nine tenths {:.2f} %, largest {:.2f} %\n",
                             losses == &times ? "from times" : "from equation 2", at(0.5), at(0.75), at(0.9), at(1));
  }
  CHECK(times[25] < 0.01);
  CHECK(times[44] < 0.045);
  CHECK(times[49] < 0.12);
}

}  // namespace test_solved_split
