// Sampled runs against whole ones, on a model small enough for both.
#include <catch2/catch.hpp>

#include <cmath>

#include "attention_engine/core/selection.h"
#include "experiment/generation/generation_run.h"
#include "host_runtime/core/planner/systems/systems.h"

using namespace csdsim;

namespace {

/// 12 layers of 8 heads of 128, on 4 channels: channel-bound in decode like the large models, in seconds.
experiment::GenerationSetup setup_of(const std::string& system, engine::SelectionSource& selection) {
  experiment::GenerationSetup setup;
  csd_model::DriveConfig& drive = setup.platform.drive;
  drive.geometry = {.channels = 4,
                    .dies_per_channel = 4,
                    .planes_per_die = 2,
                    .blocks_per_plane = 256,
                    .pages_per_block = 64,
                    .page_size = Bytes::kib(4)};
  drive.data = ftl::DataMode::timing;
  drive.dram = Bytes::gib(1);
  drive.kv_share = 1;
  drive.selection = &selection;
  setup.platform.host_memory = Bytes::gib(1);
  setup.platform.gpu_memory = Bytes::gib(8);
  setup.gpu_link = {.bandwidth = Bandwidth{25'000'000'000}, .latency = {}};
  setup.system = host::builtin_systems().make(system);
  host::ModelShape& model = setup.plan.model;
  model.layers = 12;
  model.width = 1024;
  model.heads = model.kv_heads = 8;
  model.head_dim = 128;
  model.ffn = 4096;
  model.vocab = 50'272;
  model.positions = 2048;
  setup.plan.workload.prompt_tokens.assign(8, 512);
  setup.plan.workload.output_tokens = 257;
  setup.plan.mini_batches = 2;
  return setup;
}

void check_within(double sampled, double whole, double bound, const char* what) {
  CAPTURE(what, sampled, whole);
  CHECK(std::abs(sampled - whole) <= bound * whole);
}

}  // namespace

TEST_CASE("a sampled run is within 1 % of the whole run, decode within 0.5 %") {
  for (const char* system : {"instinfer-dense", "instinfer-sparf"}) {
    CAPTURE(system);
    engine::ClusteredSelection selection(0.25, 1);
    experiment::GenerationSetup setup = setup_of(system, selection);
    setup.sampling.off = true;
    const experiment::GenerationOutcome whole = experiment::run_generation(setup);
    setup.sampling.off = false;
    setup.sampling.layers = 4;  // 2 layers of this small model are too few heads: 0.8 % dense, 2.2 % SparF
    setup.sampling.steps = 8;
    setup.sampling.cooldown = 1;
    const experiment::GenerationOutcome sampled = experiment::run_generation(setup);
    CHECK(sampled.simulated_page_ops * 3 < whole.simulated_page_ops);
    check_within(sampled.times.decode_s, whole.times.decode_s, 0.005, "decode");
    check_within(sampled.times.ttft_s, whole.times.ttft_s, 0.01, "ttft");
    check_within(sampled.decode.channel_bytes, whole.decode.channel_bytes, 0.01, "channel bytes");
  }
}

TEST_CASE("the same run twice is the same to the picosecond") {
  engine::ClusteredSelection selection(0.25, 1);
  experiment::GenerationSetup setup = setup_of("instinfer-sparf", selection);
  setup.sampling.layers = 2;
  const experiment::GenerationOutcome a = experiment::run_generation(setup);
  const experiment::GenerationOutcome b = experiment::run_generation(setup);
  CHECK(a.simulated == b.simulated);
  CHECK(a.times.decode_s == b.times.decode_s);
  CHECK(a.simulated_page_ops == b.simulated_page_ops);
}
