// Feed-forward networks in the drives, from scenarios and on a checkpoint: tokens, corruption, closed forms, sampled
// runs, errors.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "host_runtime/core/systems/in_drive_ffn/in_drive_ffn.h"
#include "platform/platform.h"
#include "tests/integration/flash_run.h"
#include "tests/integration/small_platform.h"

namespace test_in_drive_ffn {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using host::InDriveFfn;
using host::NeuronDivision;
using host::Place;

namespace {

InDriveFfn system_of(Place kv, NeuronDivision divide = NeuronDivision::neurons) {
  InDriveFfn system;
  system.kv = kv;
  system.divide = divide;
  return system;
}

double kv_share(Place kv) { return kv == Place::drive_kv() ? 0.5 : 0; }

scenario::Resolved load(const std::vector<std::string>& sets, const std::string& more) {
  return experiment::load_scenario_text(small_platform("in-drive") + more, "in_drive.yaml", CSDSIM_SOURCE_DIR, sets)
      .base;
}

const std::string kTiming =
    "model: {layers: 6, heads: 8, kv_heads: 4, head_dim: 64, hidden_size: 512, ffn_size: 2048, vocab_size: 1000, "
    "max_positions: 4096}\n"
    "system: {kind: in-drive-ffn}\n"
    "workload: {kind: generation, batch: 1, input_tokens: 40, output_tokens: 17}\nsimulation: {sampling: off}\n";

nlohmann::ordered_json document(const std::vector<std::string>& sets, const std::string& text = kTiming) {
  scenario::RunResult result = experiment::run_scenario(load(sets, text).scenario);
  CHECK(result.failure.empty());
  return std::move(result.document);
}

nlohmann::ordered_json metrics(const std::vector<std::string>& sets) { return document(sets)["metrics"]; }

std::string refusal(const std::vector<std::string>& sets, const std::string& text = kTiming) {
  try {
    load(sets, text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

/// Neurons 8 i and 8 i + 3: with one drive or two, no two of a drive are neighbours.
struct Scattered final : host::NeuronActivity {
  explicit Scattered(std::uint32_t neurons) : all(neurons) {}
  void next(SequenceId, LayerId, std::vector<std::uint32_t>& active) override {
    active.clear();
    for (std::uint32_t neuron = 0; neuron < all; neuron += 8)
      for (const std::uint32_t offset : {0u, 3u}) active.push_back(neuron + offset);
  }
  void mark(SequenceId, LayerId) override {}
  void go_back(SequenceId, LayerId) override {}
  std::uint32_t all;
};

}  // namespace

TEST_CASE("with the oracle, tokens are those of dense decoding, wherever K and V are") {
  // Inputs of the networks are rounded to fp16. Of drawn tokens, one in several hundred may therefore differ; which one
  // depends on the kernels that OpenBLAS chooses for the processor. These seeds have none with any of its x86 kernels
  // that were tried (OPENBLAS_CORETYPE).
  for (const std::uint64_t seed : {0u, 1u, 4u}) {
    const float temperature = seed == 0 ? 0.0f : 0.8f;
    const host::SamplingOptions sampling{.temperature = temperature, .seed = seed};
    const Prompts expected = dense(kPrompts, 12, sampling);
    for (const Place kv : {Place::gpu(), Place::drive_kv()})
      for (const std::uint32_t drives : {1u, 3u}) {
        CAPTURE(seed, host::place_name(kv), drives);
        FlashRun run(system_of(kv), kPrompts, 12, sampling, {}, drives, kv_share(kv));
        CHECK(run.tokens() == expected);
        CHECK(run.neurons().carried()->wrong_rows() == 0);
        CHECK(run.neurons().carried()->wrong_sums() == 0);
        CHECK(run.outcome.integrity_errors == 0);
        CHECK(run.outcome.decode.features[host::Neurons::kFlashBytes] == 0);
        CHECK(run.outcome.decode.neurons > 0);
      }
  }
}

TEST_CASE("divisions, layouts, mini-batches and host memory change no token") {
  const Prompts expected = dense(kPrompts, 10);
  const auto check = [&](InDriveFfn system, std::uint32_t drives, std::uint32_t mini_batches, bool through_host) {
    FlashRun run(system, kPrompts, 10, {}, {}, drives, kv_share(system.kv), mini_batches);
    run.setup.plan.through_host = through_host;
    CHECK(run.tokens() == expected);
    CHECK(run.neurons().carried()->wrong_rows() == 0);
    CHECK(run.neurons().carried()->wrong_sums() == 0);
  };
  InDriveFfn rows = system_of(Place::drive_kv());
  rows.records = host::RecordLayout::rows;
  check(rows, 2, 1, false);
  rows.flash.layout = host::RecordAlignment::packed;
  check(rows, 2, 2, true);
  InDriveFfn layers = system_of(Place::gpu(), NeuronDivision::layers);
  layers.flash.layout = host::RecordAlignment::packed;
  check(layers, 4, 1, true);
  check(layers, 2, 2, false);
}

TEST_CASE("neurons that are predicted and do not fire, or the other way round: tokens of the same masks in memory") {
  const auto half = std::make_shared<EverySecondNeuron>();
  const Prompts expected = masked(*half, kPrompts, 12, 1);
  CHECK(expected != dense(kPrompts, 12));
  for (const Place kv : {Place::gpu(), Place::drive_kv()}) {
    FlashRun run(system_of(kv), kPrompts, 12, {}, half, 2, kv_share(kv));
    CHECK(run.tokens() == expected);
    CHECK(run.neurons().carried()->wrong_sums() == 0);
  }
}

TEST_CASE("a corrupted record makes a wrong token, and the run says which sum") {
  const Prompts expected = dense(kPrompts, 12);
  FlashRun run(system_of(Place::gpu()), kPrompts, 12, {}, {}, 2);
  const host::FlashWeights& weights = run.neurons().weights();
  experiment::GenerationHooks hooks;
  platform::Platform* platform = nullptr;
  hooks.before_start = [&](platform::Platform& p) { platform = &p; };
  bool done = false;
  hooks.operation = [&](const host::OperationRecord& record) {
    if (done || record.kind != host::OpKind::sample) return;  // the prefill has ended
    done = true;
    // The down column of neurons of layer 2 that drive 1 has: exponents of weights become large.
    csd_model::Drive& drive = platform->drive(1);
    for (std::uint32_t neuron = 1; neuron < 1024; neuron += 2) {
      const Bytes at = weights.address(LayerId{2}, neuron, 1);
      const std::uint64_t page = FlashRun::drive().geometry.page_size.value;
      drive.backing_store().flip_bit(drive.block_ftl().lookup(ftl::LogicalPage{at.value / page}),
                                     (at.value % page) * 8 + 14);
    }
  };
  CHECK(run.tokens(hooks) != expected);
  CHECK(done);
  CHECK(run.neurons().carried()->wrong_rows() == 0);  // nothing was read
  CHECK(run.neurons().carried()->wrong_sums() > 0);
  CHECK(run.neurons().carried()->first_wrong() == "layer 2, drive 1, decode step 0");
}

TEST_CASE("a carried scenario compares with the host and with dense decoding, gated models, too") {
  for (const char* const model : {"models/opt-6m", "models/llama-gqa-6m"})
    for (const char* const kv : {"gpu", "drive"}) {
      const bool gated = std::string(model) != "models/opt-6m";
      CAPTURE(model, kv);
      std::vector<std::string> sets{std::string("model.path=") + model, std::string("system.kv=") + kv};
      if (gated) sets.emplace_back("model.fatrelu=0.02");
      const auto result = document(sets,
                                   "system: {kind: in-drive-ffn}\n"
                                   "workload: {kind: generation, batch: 2, input_tokens: 12, output_tokens: 8}\n"
                                   "simulation: {data: carried, compare: [host, gpu-only]}\n");
      CHECK(result["comparison"]["host"]["tokens_equal"] == 16);
      CHECK(result["comparison"]["host"]["attention_outputs_identical"] == true);
      CHECK(result["comparison"]["gpu-only"]["tokens_equal"] == 16);
      CHECK(result["stats"]["wrong_records"] == 0);
      CHECK(result["stats"]["wrong_sums"] == 0);
    }
}

TEST_CASE("the trained predictor: the host gets the same bits, with two drives and commands that are cut, too") {
  const std::string text =
      "model: {path: models/opt-6m}\nsystem: {kind: in-drive-ffn, predictor: trained}\n"
      "workload: {kind: generation, batch: 2, input_tokens: 20, output_tokens: 12}\n"
      "simulation: {data: carried, compare: [host]}\n";
  for (const char* const mdts : {"4 KiB", "2 MiB"}) {
    const auto trained = document({std::string("platform.device.nvme.mdts=") + mdts, "system.threshold=0.3",
                                   "system.kv=drive", "platform.device.count=2"},
                                  text);
    CHECK(trained["comparison"]["host"]["tokens_equal"] == 24);
    CHECK(trained["comparison"]["host"]["attention_outputs_identical"] == true);
    CHECK(trained["stats"]["wrong_sums"] == 0);
  }
}

TEST_CASE("bytes on the link, multiply-accumulates and time of a step: closed forms") {
  constexpr std::uint64_t kWidth = 512, kFfn = 2048, kLayers = 6, kSteps = 5;
  for (const std::uint32_t drives : {1u, 2u})
    for (const std::uint64_t batch : {1u, 3u}) {
      CAPTURE(drives, batch);
      experiment::GenerationSetup setup = small_setup(small_drive(), {}, kSteps + 1, "gpu-only");
      setup.platform.drive.kv_share = 0;
      setup.platform.drive.data = ftl::DataMode::timing;
      setup.platform.drives = drives;
      setup.system = system_of(Place::gpu()).clone();
      setup.plan.model = {
          .layers = kLayers, .width = kWidth, .heads = 8, .kv_heads = 8, .head_dim = 64, .ffn = kFfn, .vocab = 1000};
      setup.plan.workload.set_prompts(std::vector<std::uint32_t>(batch, 8));
      setup.sources.neurons = [&] { return std::make_unique<Scattered>(static_cast<std::uint32_t>(kFfn)); };
      platform::Platform* platform = nullptr;
      experiment::GenerationHooks hooks;
      hooks.before_start = [&](platform::Platform& p) { platform = &p; };
      nvme::RegionTraffic before, after;
      SimTime least = SimTime::milliseconds(1000);
      hooks.operation = [&](const host::OperationRecord& record) {
        if (record.kind == host::OpKind::sample)
          (record.tag.phase == host::Phase::prefill ? before : after) = platform->traffic(nvme::RegionKind::gpu_memory);
        if (record.kind == host::OpKind::feed_forward && record.resource.kind == host::ResourceKind::drive_blocks)
          least = std::min(least, record.end - record.start);
      };
      const experiment::GenerationOutcome out = experiment::run_generation(setup, hooks);
      const std::uint64_t neurons = kFfn / 4 / drives, commands = kLayers * kSteps * drives;  // neurons of a command
      const auto padded = [](std::uint64_t bytes) { return (bytes + 63) / 64 * 64; };
      CHECK(after.bytes_from_region - before.bytes_from_region ==
            commands * (32 * neurons + padded(2 * neurons) + padded(2 * batch * kWidth)));
      CHECK(after.bytes_to_region - before.bytes_to_region == commands * padded(4 * batch * kWidth));
      CHECK(out.decode.macs == double(2 * kWidth * batch * neurons * commands));
      CHECK(out.decode.neurons == double(neurons * commands));
      // A record of 2 KiB is in a page of 4 KiB of its own.
      const double bytes = double(4096 * neurons);
      CHECK(out.decode.channel_bytes == double(commands) * bytes);
      // Never faster than channels and kernels.
      const csd_model::DriveConfig& drive = setup.platform.drive;
      const double channels = bytes / (4 * double(drive.flash.channel_bandwidth.bytes_per_second));
      const double kernels = double(2 * kWidth * batch * neurons) /
                             (drive.engine.kernels * drive.engine.macs_per_cycle * double(drive.engine.clock.hertz));
      CHECK(least.seconds() > std::max(channels, kernels));
      CHECK(least.seconds() < 1.1 * double(neurons) / 4 * 50e-6);  // the pages are on 4 of the 16 planes
    }
}

TEST_CASE("what a step takes adds up, and falls with the drives that divide it") {
  std::map<std::string, std::vector<double>> seconds;
  for (const char* const divide : {"neurons", "layers"})
    for (const char* const drives : {"1", "2", "4"}) {
      const auto m = metrics({std::string("system.divide=") + divide, std::string("platform.device.count=") + drives});
      CHECK(m["flash_io_s_per_step"].get<double>() + m["compute_s_per_step"].get<double>() ==
            Approx(m["tpot_s"].get<double>()).epsilon(1e-6));
      CHECK(m["flash_bytes_per_step"] == 0);
      CHECK(m["neurons_loaded_per_step"] == 0);
      CHECK(m["neurons_in_drives_per_step"].get<double>() == Approx(6 * 2048 * 0.105).epsilon(0.1));
      seconds[divide].push_back(m["flash_io_s_per_step"]);
    }
  CHECK(seconds["layers"][2] == Approx(seconds["layers"][0]).epsilon(0.02));
  CHECK(seconds["neurons"][0] == Approx(seconds["layers"][0]).epsilon(0.02));
  CHECK(seconds["neurons"][1] < 0.7 * seconds["neurons"][0]);
  CHECK(seconds["neurons"][2] < 0.7 * seconds["neurons"][1]);
}

TEST_CASE("K and V in the same drives take flash and channels of it") {
  const auto both = document({"system.kv=drive"}), alone = document({});
  CHECK(both["metrics"]["bytes_flash_channel"] > alone["metrics"]["bytes_flash_channel"]);
  CHECK(both["metrics"]["neurons_in_drives_per_step"] == alone["metrics"]["neurons_in_drives_per_step"]);
  CHECK(both["metrics"]["bytes_engine"] > alone["metrics"]["bytes_engine"]);
  CHECK(both["metrics"]["tpot_s"] > alone["metrics"]["tpot_s"]);
  // One mini-batch attends while the other one's networks run.
  const std::vector<std::string> batch{"system.kv=drive", "workload.batch=8", "workload.input_tokens=200"};
  std::vector<std::string> parts = batch;
  parts.emplace_back("workload.mini_batches=2");
  CHECK(metrics(parts)["neurons_in_drives_per_step"] > metrics(batch)["neurons_in_drives_per_step"]);
}

TEST_CASE("networks in the drive: a sampled run agrees with the whole one") {
  for (const char* const kv : {"gpu", "drive"}) {
    CAPTURE(kv);
    const std::vector<std::string> base = {std::string("system.kv=") + kv, "workload.output_tokens=200",
                                           "model.layers=12", "platform.device.flash.blocks_per_plane=256"};
    std::vector<std::string> sampled = base;
    sampled.push_back("simulation={sampling: {layers: 8, steps: 24}}");
    const auto whole = metrics(base), part = metrics(sampled);
    for (const char* const of : {"tpot_s", "neurons_in_drives_per_step", "flash_io_s_per_step", "bytes_host_link"})
      CHECK(part[of].get<double>() == Approx(whole[of].get<double>()).epsilon(0.03));
    CHECK(part["page_ops"].get<double>() < whole["page_ops"].get<double>() / 2);
  }
}

TEST_CASE("networks in the drive: recorded neurons take the place of the model in timing runs") {
  const std::string recorded = "simulation={sampling: off, neurons: tests/data/neurons/small.json}";
  const auto m = metrics({recorded, "model.ffn_size=512"});
  // Two layers of the file for six of the model, two tokens in turn: 7 neurons of one layer; 5 and 3 of the other.
  CHECK(m["neurons_in_drives_per_step"] == 3 * 7 + 3 * 4);
  CHECK_THAT(refusal({recorded, "system.active_share=0.3"}), Contains("system.active_share is not used"));
}

TEST_CASE("networks in the drive: mistakes are located") {
  CHECK_THAT(refusal({"platform.device.ftl.mapping.kind=page"}),
             Contains("platform.device.ftl.mapping.kind") && Contains("has no engine"));
  CHECK_THAT(refusal({"platform.device.ftl.mapping.kind=page", "system.kv=drive"}), Contains("keeps no KV cache"));
  CHECK_THAT(refusal({"platform.device.count=40", "model.ffn_size=32"}),
             Contains("platform.device.count") && Contains("32 neurons"));
  CHECK(refusal({"model.ffn_size=2", "platform.device.count=3", "system.divide=layers"}) == "accepted");
  CHECK_THAT(refusal({"system.kv=drive", "platform.device.count=5"}), Contains("5 drives for 4 KV heads"));
  CHECK_THAT(refusal({"workload.batch=300", "platform.device.engine.buffer=1 MiB"}),
             Contains("platform.device.engine.buffer") && Contains("mini-batches"));
  CHECK_THAT(
      refusal({"workload.batch=300", "platform.device.engine.buffer=8 MiB", "platform.device.nvme.mdts=512 KiB"}),
      Contains("platform.device.nvme.mdts"));
  CHECK_THAT(refusal({"system.chunk=5000 B"}), Contains("system.chunk") && Contains("multiple of the logical block"));
  CHECK_THAT(refusal({"system.threads=64000"}), Contains("system.threads") && Contains("4092 commands"));
  CHECK_THAT(refusal({"platform.gpu.count=2", "workload.batch=2"}), Contains("platform.gpu.count"));
  CHECK_THAT(refusal({"system.predictor=trained"}), Contains("system.predictor is not used"));
  CHECK_THAT(refusal({"system.kv=drive", "workload.batch=40", "workload.input_tokens=4000"}),
             Contains("beside the weights"));
  CHECK_THAT(refusal({"workload.background={}", "system.kv=drive"}), Contains("weights on the same blocks"));
  const std::string carried =
      "system: {kind: in-drive-ffn}\n"
      "workload: {kind: generation, batch: 1, input_tokens: 8, output_tokens: 3}\nsimulation: {data: carried}\n";
  CHECK_THAT(refusal({"model.path=models/llama-gqa-6m"}, carried),
             Contains("system.kind") && Contains("model.fatrelu"));
}

}  // namespace test_in_drive_ffn
