// hillinfer with data: the tokens are those of the same selection made on the host, and none is lost or double.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/features/token_pools/model/token_locality.h"
#include "host_runtime/core/features/token_pools/token_pools_feature.h"
#include "host_runtime/core/systems/hillinfer/hillinfer.h"
#include "tests/integration/file_setup.h"
#include "tests/integration/small_model.h"

namespace test_hillinfer {

using namespace csdsim;
using namespace csdsim::test;

namespace {

experiment::GenerationSetup carried_setup(const Prompts& prompts, std::uint32_t new_tokens, const SmallModel& model,
                                          const host::Hillinfer& system) {
  experiment::GenerationSetup setup = small_setup(small_drive(), prompts, new_tokens, "hillinfer", model);
  setup.host = {.cores = 8, .core_flops = 100'000'000'000, .memory = Bandwidth{100'000'000'000}};
  setup.system = system.clone();
  return setup;
}

host::Hillinfer small_system() {
  host::Hillinfer system;
  system.ratio = Ratio{1, 4};
  system.kept_hot = Ratio{1, 5};
  system.host_share = Ratio{1, 2};
  system.chunk = 16;
  return system;
}

/// One layer of one sequence; all tokens but the newest are in the drive.
scenario::Scenario timing(const std::vector<std::string>& sets) {
  return experiment::load_scenario_text(R"(csdsim: 1
name: hillinfer
platform:
  gpu: {preset: a6000}
  host: {preset: xeon-5320}
  device:
    flash: {channels: 4, dies_per_channel: 2, planes_per_die: 2, blocks_per_plane: 256, pages_per_block: 64, page_size: 4 KiB}
    dram: {capacity: 64 MiB}
model: {layers: 1, heads: 4, kv_heads: 4, head_dim: 128, hidden_size: 512, ffn_size: 1024, vocab_size: 1000, max_positions: 8192}
workload: {kind: generation, batch: 1, input_tokens: 4096, output_tokens: 2, mini_batches: 1}
system: {kind: hillinfer, host_share: 0, pinned: 0, kept_hot: 0}
simulation: {sampling: off}
)",
                                        "hillinfer.yaml", CSDSIM_SOURCE_DIR, sets)
      .base.scenario;
}

experiment::GenerationSetup timing_setup(const std::vector<std::string>& sets) {
  const scenario::Scenario s = timing(sets);
  const auto& workload = experiment::generation_of(s);
  experiment::GenerationSetup setup =
      experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens));
  setup.sources.tokens = [] { return std::make_unique<host::TokenLocalityModel>(host::TokenLocalityParams{}, 1); };
  return setup;
}

/// The time from the first command of the scores to the end of the last merge, and of its parts, in seconds.
struct ScoreTimes {
  double total = 0, first_block = 0, block = 0, merge = 0;
  std::uint64_t blocks = 0;
};

ScoreTimes scores_of(const std::vector<std::string>& sets, Bandwidth host_memory) {
  experiment::GenerationSetup setup = timing_setup(sets);
  setup.host.memory = host_memory;
  ScoreTimes times;
  double start = 0, last = 0, end = 0;
  experiment::GenerationHooks hooks;
  hooks.operation = [&](const host::OperationRecord& r) {
    if (r.kind == host::OpKind::score_kv && r.resource.kind == host::ResourceKind::drive_kv) {
      if (times.blocks++ == 0) {
        start = r.start.seconds();
        times.first_block = r.end.seconds() - start;
      }
      last = r.end.seconds();
    }
    if (r.kind != host::OpKind::merge_scores) return;
    times.merge = (r.end - r.start).seconds();
    end = r.end.seconds();
  };
  experiment::run_generation(setup, hooks);
  times.total = end - start;
  if (times.blocks > 1) times.block = (last - start - times.first_block) / static_cast<double>(times.blocks - 1);
  return times;
}

}  // namespace

TEST_CASE("hillinfer makes the tokens of the same selection on the host, in all precisions and with all pools") {
  for (const char* const directory : {"models/opt-6m", "models/llama-gqa-6m"}) {
    const SmallModel model(directory);
    const Prompts prompts = within(model, {text_prompt(61), text_prompt(40, 300), text_prompt(17, 700)});
    std::uint32_t trial = 0;
    for (const ScorePrecision precision : {ScorePrecision::fp16, ScorePrecision::int8, ScorePrecision::int4})
      for (const ScoreAggregate aggregate :
           {ScoreAggregate::sum_raw, ScoreAggregate::max_raw, ScoreAggregate::per_head}) {
        host::Hillinfer system = small_system();
        system.precision = precision;
        system.aggregate = aggregate;
        system.streamed = trial % 3 != 2;
        system.prefetch = trial < 5;
        system.pools = trial % 2 == 0 ? host::PoolPolicy::hit_table : host::PoolPolicy::naive;
        experiment::GenerationSetup setup = carried_setup(prompts, 24, model, system);
        setup.plan.through_host = trial % 4 >= 2;
        setup.plan.mini_batches = 1 + trial % 2;
        setup.platform.drives = setup.plan.drives = 1 + trial % 4 % 3;
        setup.platform.drive.engine.scoring = {.fp16_lanes = {}, .int8_lanes = 64, .int4_lanes = 64};
        ++trial;
        CAPTURE(directory, system.traits().method.name, trial, setup.platform.drives);
        host::ConfiguredMethod method = host::configure_method(
            system.traits().method.name, system.traits().method.settings, model.checkpoint.config.head_dim);
        const Prompts expected =
            host::generate_on_host(*model.decoder, std::move(method.method), prompts,
                                   {.max_new_tokens = 24, .sampling = {.temperature = 0}, .stop = {}});
        const DecodeRun reference = decode_on_host(setup, prompts, {.temperature = 0}, model);
        CHECK(reference.tokens == expected);
        const DecodeRun drive = decode_in_drive(setup, prompts, {.temperature = 0}, {}, model);
        CHECK(drive.tokens == expected);
        CHECK(drive.attention_digest == reference.attention_digest);
        CHECK(drive.outcome.integrity_errors == 0);
        // Tokens change places: otherwise the comparison says little.
        CHECK(drive.outcome.decode.features[host::PooledTokens::kPromoted] > 0);
        CHECK(drive.outcome.decode.features[host::PooledTokens::kDemoted] >
              drive.outcome.decode.features[host::PooledTokens::kPromoted]);
        CHECK(drive.outcome.decode.features[host::PooledTokens::kImportantCold] > 0);
        CHECK(drive.outcome.decode.features[host::PooledTokens::kWastedScores] > 0);
      }
  }
}

TEST_CASE("streamed scores take what the pipeline's formula says, and gain where merging takes time") {
  const Bandwidth fast{1'000'000'000'000};
  const ScoreTimes quick = scores_of({"system.chunk=512"}, fast);
  REQUIRE(quick.blocks == 8);
  const auto formula = [](const ScoreTimes& t) {
    return t.first_block + static_cast<double>(t.blocks - 1) * std::max(t.block, t.merge) + t.merge;
  };
  CAPTURE(quick.total, quick.first_block, quick.block, quick.merge);
  CHECK(quick.total == Approx(formula(quick)).epsilon(0.02));
  // A merge takes twice as long as a block, then half as long.
  for (const double share : {2.0, 0.5}) {
    // 12 B per token, at 80 % of the host's memory bandwidth.
    const Bandwidth memory{static_cast<std::uint64_t>(12 * 512 / 0.8 / (share * quick.block))};
    const ScoreTimes streamed = scores_of({"system.chunk=512"}, memory);
    const ScoreTimes whole = scores_of({"system.streamed=false"}, memory);
    CAPTURE(share, streamed.total, streamed.first_block, streamed.block, streamed.merge, whole.total, whole.first_block,
            whole.merge);
    CHECK(streamed.merge == Approx(share * quick.block).epsilon(0.02));
    CHECK(streamed.total == Approx(formula(streamed)).epsilon(0.02));
    CHECK(whole.blocks == 1);
    CHECK(whole.total == Approx(whole.first_block + whole.merge).epsilon(0.02));
    CHECK(whole.merge == Approx(8 * streamed.merge).epsilon(0.02));
    CHECK(streamed.total < whole.total);
  }
  // Nothing is left to hide.
  const ScoreTimes whole = scores_of({"system.streamed=false"}, fast);
  CAPTURE(whole.total);
  CHECK(quick.total >= 0.98 * whole.total);
}

TEST_CASE("prefetch hides what scoring and fetching a layer take under the layer before, and costs W_Q once more") {
  for (const std::uint32_t tokens : {64U, 1024U, 4096U})
    for (const char* const share : {"0", "30 %", "90 %"}) {
      constexpr std::uint32_t kLayers = 6, kSteps = 3;
      struct Times {
        double decode = 0, layers = 0;
        double waits = 0;        // from the projections of a layer to its attention
        double projections = 0;  // those of the next layer's queries among them
      };
      const auto run = [&](const char* prefetch) {
        const experiment::GenerationSetup setup =
            timing_setup({"model.layers=6", fmt::format("workload.input_tokens={}", tokens), "workload.output_tokens=4",
                          fmt::format("system.host_share={}", share), fmt::format("system.prefetch={}", prefetch)});
        Times times;
        double projected = 0, first = 0, last = 0;
        experiment::GenerationHooks hooks;
        hooks.operation = [&](const host::OperationRecord& r) {  // times of the last step
          if (r.tag.phase != host::Phase::decode || r.tag.step != 2 || !r.tag.layer) return;
          if (r.kind == host::OpKind::attention_inputs) {
            projected = r.end.seconds();
            times.projections += (r.end - r.start).seconds();
            if (r.tag.layer->value == 0) first = r.start.seconds();
          }
          if (r.kind == host::OpKind::attention) times.waits += r.start.seconds() - projected;
          if (r.kind == host::OpKind::finish_layer) last = r.end.seconds();
        };
        times.decode = experiment::run_generation(setup, hooks).times.decode_s;
        times.layers = last - first;
        return times;
      };
      const Times with = run("true"), without = run("false");
      const double queries = with.projections - without.projections;
      CAPTURE(tokens, share, with.decode, without.decode, without.waits, without.layers, with.layers, queries);
      CHECK(queries > 0);
      CHECK(with.decode <= without.decode + kSteps * queries);
      if (without.waits > 2 * queries) CHECK(with.decode < without.decode);
      // The first layer hides nothing; the others the shorter one of the two.
      const double hidden = std::min(without.waits, without.layers - without.waits) * (kLayers - 1) / kLayers;
      CHECK(with.layers == Approx(without.layers - hidden).epsilon(0.15));
    }
}

TEST_CASE("drives score and fetch their shares at the same time") {
  struct Times {
    double scores = 0, fetch = 0;
    std::uint64_t commands = 0;
  };
  const auto run = [](std::uint32_t drives, const char* aggregate) {
    const experiment::GenerationSetup setup =
        timing_setup({fmt::format("platform.device.count={}", drives), fmt::format("system.aggregate={}", aggregate),
                      "system.chunk=8192", "system.prefetch=false", "workload.output_tokens=6"});
    Times times;
    double asked = 0, selected = 0;
    experiment::GenerationHooks hooks;
    hooks.operation = [&](const host::OperationRecord& r) {  // times of the last step
      if (r.tag.phase != host::Phase::decode || r.tag.step != 4) return;
      const bool drive = r.resource.kind == host::ResourceKind::drive_kv;
      if (r.kind == host::OpKind::attention_inputs) asked = r.end.seconds();
      if (r.kind == host::OpKind::score_kv && drive) {
        times.scores = std::max(times.scores, r.end.seconds() - asked);
        ++times.commands;
      }
      if (r.kind == host::OpKind::select_tokens) selected = r.end.seconds();
      if (r.kind == host::OpKind::attention) times.fetch = r.start.seconds() - selected;
    };
    experiment::run_generation(setup, hooks);
    return times;
  };
  const Times one = run(1, "sum_raw"), four = run(4, "sum_raw"), by_head = run(4, "per_head");
  CAPTURE(one.scores, four.scores, by_head.scores, one.fetch, four.fetch, by_head.fetch);
  CHECK(one.commands == 1);
  CHECK(four.commands == 4);
  CHECK(by_head.commands == 16);
  // The way of a command and the first page are not divided.
  CHECK(four.scores < one.scores / 2.2);
  CHECK(four.scores > one.scores / 4);
  CHECK(four.fetch < one.fetch / 2.5);
  CHECK(four.fetch > one.fetch / 4);
  // Commands of one head read the same keys.
  CHECK(by_head.scores == Approx(four.scores).epsilon(0.3));
}

TEST_CASE("a sampled run of hillinfer is within its stated error of the whole one, with most layers within 1 %") {
  experiment::GenerationSetup setup =
      timing_setup({"model.layers=12", "workload.batch=8", "workload.input_tokens=512", "workload.output_tokens=49",
                    "system.host_share=40 %", "system.kept_hot=20 %", "system.chunk=128"});
  const experiment::GenerationOutcome whole = experiment::run_generation(setup);
  CHECK(whole.error.largest() == 0);
  setup.sampling.off = false;
  setup.sampling.steps = 8;
  for (const std::uint32_t layers : {6U, 9U}) {
    setup.sampling.layers = layers;
    const experiment::GenerationOutcome sampled = experiment::run_generation(setup);
    CAPTURE(layers, whole.times.decode_s, sampled.times.decode_s, whole.times.ttft_s, sampled.times.ttft_s,
            sampled.error.decode());
    CHECK(sampled.error.decode() > 0);
    CHECK(std::abs(sampled.times.decode_s / whole.times.decode_s - 1) <= sampled.error.decode());
    CHECK(sampled.times.ttft_s == Approx(whole.times.ttft_s).epsilon(0.01));
    // Fetches of every second layer are hidden, so that few layers show too many of one sort.
    CHECK(sampled.times.decode_s == Approx(whole.times.decode_s).epsilon(layers == 9 ? 0.01 : 0.05));
  }
}

TEST_CASE("a run of one token has no decode step, and no figures of pools") {
  const experiment::GenerationOutcome run = experiment::run_generation(timing_setup({"workload.output_tokens=1"}));
  CHECK(run.times.decode_steps == 0);
  CHECK(run.times.ttft_s > 0);
  CHECK(run.features.empty());
}

}  // namespace test_hillinfer
