// Sampled runs whose attention commands pass over heads, against the same samples with all heads.
#include <catch2/catch.hpp>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "attention_engine/core/selection.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/measure/resource_use.h"
#include "experiment/sampling/sampling_search.h"
#include "host_runtime/core/systems/systems.h"

namespace test_passed_heads {

using namespace csdsim;

namespace {

/// Equal sequences on drives of 8 to 128 planes, with commands of 256 to 1,024 heads; page buffers and firmware finite
/// or not; one or two mini-batches. The sampled steps include flushes of tokens and, with SparF, of windows.
experiment::GenerationSetup random_setup(std::uint32_t seed, engine::SelectionSource& selection, std::string& text) {
  std::mt19937 rng(seed);
  const auto one_of = [&](std::vector<std::uint32_t> values) { return values[rng() % values.size()]; };
  const bool sparf = rng() % 2, buffers = rng() % 2, firmware = rng() % 2;
  experiment::GenerationSetup setup;
  csd_model::DriveConfig& drive = setup.platform.drive;
  drive.geometry = {.channels = one_of({2, 4, 8}),
                    .dies_per_channel = one_of({2, 4}),
                    .planes_per_die = one_of({2, 4}),
                    .blocks_per_plane = 8192,
                    .pages_per_block = 64,
                    .page_size = Bytes::kib(4)};
  drive.flash.page_buffers = buffers ? one_of({4, 13}) : 0;
  drive.flash.channel_bandwidth = Bandwidth{one_of({700'000'000, 1'400'000'000})};
  if (firmware) {
    drive.lookup_cores = 2;
    drive.lookup_time = SimTime::nanoseconds(395);
    drive.firmware.append = SimTime::nanoseconds(948);
    drive.firmware.flush = SimTime::nanoseconds(1108);
  }
  drive.data = ftl::DataMode::timing;
  drive.dram = Bytes::gib(16);
  drive.kv_share = 1;
  drive.selection = &selection;
  setup.platform.host_memory = Bytes::gib(4);
  setup.platform.gpu_memory = Bytes::gib(8);
  setup.gpu_link = {.bandwidth = Bandwidth{25'000'000'000}, .latency = {}};
  setup.system = host::builtin_systems().make(sparf ? "instinfer-sparf" : "instinfer-dense");
  host::ModelShape& model = setup.plan.model;
  model.layers = 24;
  model.heads = model.kv_heads = one_of({16, 20});
  model.head_dim = one_of({64, 128});
  model.width = model.heads * model.head_dim;
  model.ffn = 4 * model.width;
  model.vocab = 50'272;
  model.positions = 4096;
  const std::uint32_t tokens = one_of({128, 200, 400}), parts = one_of({1, 2, 2});
  setup.plan.workload.set_prompts(std::vector<std::uint32_t>(parts * one_of({24, 40}), tokens));
  setup.plan.workload.output_tokens = one_of({97, 129});
  setup.plan.mini_batches = parts;
  setup.sampling = experiment::first_sample(*setup.system, setup.plan);
  setup.sampling.steps = 4;
  text = std::string(sparf ? "SparF" : "dense") + ", " + std::to_string(drive.geometry.channels) + " channels, " +
         std::to_string(drive.geometry.planes()) + " planes, " + std::to_string(drive.flash.buffer_limit()) +
         " page buffers, " + (firmware ? "firmware" : "no firmware") + ", " + std::to_string(model.heads) +
         " heads of " + std::to_string(model.head_dim) + ", " + std::to_string(setup.plan.workload.size()) +
         " sequences of " + std::to_string(tokens) + ", " + std::to_string(parts) + " mini-batches";
  return setup;
}

double off_by(double passed, double all) { return all == passed ? 0 : std::abs(passed / all - 1); }

/// What holds decode up, and its share of the critical path.
experiment::ResourceUse bound_of(const experiment::GenerationOutcome& out) {
  return experiment::bounding(experiment::resource_use(out.decode, {}, &out.times.decode_resource_s), true);
}

}  // namespace

TEST_CASE("commands that pass over heads agree with whole ones within the stated error") {
  // The same samples, so that the error of the steps does not count. That of the layers does: commands of the same work
  // differ by chance from layer to layer, passed over or not.
  std::uint32_t runs = 0, outside = 0, resources = 0, resources_outside = 0;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    engine::ClusteredSelection selection(0.25, 1);
    std::string text;
    experiment::GenerationSetup setup = random_setup(seed, selection, text);
    setup.sampling.heads = 0;
    const experiment::GenerationOutcome all = experiment::run_generation(setup);
    CHECK(all.error.heads == 0);
    CHECK(all.statement.find("heads of their attention") == std::string::npos);
    setup.sampling.heads = 64;
    const experiment::GenerationOutcome passed = experiment::run_generation(setup);
    const double decode = off_by(passed.times.decode_s, all.times.decode_s);
    const double stated = passed.error.heads + passed.error.layers;
    CAPTURE(seed, text, decode, stated, passed.error.heads, passed.statement);
    CHECK(passed.error.heads > 0);
    CHECK(passed.statement.find("heads of their attention") != std::string::npos);
    CHECK(double(passed.simulated_page_ops) < 0.7 * double(all.simulated_page_ops));
    // All heads of the prefill are simulated.
    CHECK(passed.times.ttft_s == all.times.ttft_s);
    CHECK(passed.prefill.page_ops == all.prefill.page_ops);
    ++runs;
    outside += decode > stated;
    CHECK(decode <= 1.5 * stated);
    const bool dense = text.starts_with("dense");
    for (const auto work : {&csd_model::DriveWork::page_ops, &csd_model::DriveWork::channel_bytes,
                            &csd_model::DriveWork::engine_bytes, &csd_model::DriveWork::macs})
      CHECK(off_by(passed.decode.*work, all.decode.*work) <= (dense ? 0.001 : 0.005));
    CHECK(off_by(passed.decode.programmed_bytes, all.decode.programmed_bytes) <= 1e-9);

    const experiment::ResourceUse bound = bound_of(passed), of_all = bound_of(all);
    CAPTURE(bound.name, bound.path_s / passed.times.decode_s, of_all.name, of_all.path_s / all.times.decode_s);
    CHECK(bound.name == of_all.name);
    CHECK(off_by(bound.path_s, of_all.path_s) <= stated + 0.02);
    for (std::size_t i = 0; i < kDriveStations; ++i) {
      const double busy = passed.decode.stations.busy.values[i], whole = all.decode.stations.busy.values[i];
      CHECK(busy <= passed.times.decode_s * (1 + 1e-9));
      if (whole < 0.01 * all.times.decode_s) continue;
      ++resources;
      resources_outside += off_by(busy, whole) > stated;
    }
  }
  CAPTURE(runs, outside, resources, resources_outside);
  CHECK(outside * 20 <= runs);
  CHECK(resources_outside * 20 <= resources);
}

TEST_CASE("only heads of a sample are passed over, and only where that is asked for") {
  engine::ClusteredSelection selection(0.25, 1);
  std::string text;
  experiment::GenerationSetup setup = random_setup(3, selection, text);
  setup.plan.workload.output_tokens = 5;
  setup.sampling.off = true;
  const experiment::GenerationOutcome off = experiment::run_generation(setup);
  CHECK(off.error.heads == 0);
  setup.sampling.off = false;
  setup.sampling.layers = setup.sampling.prefill_layers =
      setup.plan.model.layers;  // all steps, too, because they are few
  const experiment::GenerationOutcome exact = experiment::run_generation(setup);
  CHECK(exact.error.largest() == 0);
  CHECK(exact.times.decode_s == off.times.decode_s);
}

TEST_CASE("a run to an asked error passes over heads where their number is stated, and not where its sample is short") {
  engine::ClusteredSelection selection(0.25, 1);
  std::string text;
  experiment::GenerationSetup setup = random_setup(3, selection, text);
  setup.asked_error = 0.02;
  setup.automatic_heads = true;
  REQUIRE(experiment::planned_work(setup).total() > experiment::kWholeRun);
  const experiment::GenerationOutcome all = experiment::run_generation(setup);
  CHECK(all.error.decode() > 0);
  CHECK(all.error.heads == 0);
  setup.automatic_heads = false;
  setup.sampling.heads = 64;
  const experiment::GenerationOutcome passed = experiment::run_generation(setup);
  CHECK(passed.error.heads > 0);
  CHECK(passed.error.largest() <= 0.02);
  CHECK(passed.simulated_page_ops < all.simulated_page_ops);
  CHECK(off_by(passed.times.decode_s, all.times.decode_s) <= all.error.decode() + passed.error.decode());
}

}  // namespace test_passed_heads
