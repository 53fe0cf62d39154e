// Weights in flash, from scenarios and on a checkpoint: tokens, corruption, closed forms of time, sampled runs, errors.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "host_runtime/core/decoder/generation.h"
#include "platform/platform.h"
#include "tests/integration/flash_run.h"

namespace test_llm_in_a_flash {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using host::FlashTechnique;

TEST_CASE("with the oracle, the tokens of every technique are those of dense decoding") {
  for (const float temperature : {0.0f, 0.8f}) {
    const host::SamplingOptions sampling{.temperature = temperature, .seed = 3};
    const Prompts expected = dense(kPrompts, 12, sampling);
    for (const FlashTechnique technique : {FlashTechnique::naive, FlashTechnique::hybrid, FlashTechnique::predictor,
                                           FlashTechnique::windowing, FlashTechnique::bundling}) {
      CAPTURE(temperature, static_cast<int>(technique));
      FlashRun run(system_of(technique), kPrompts, 12, sampling);
      CHECK(run.tokens() == expected);
      CHECK(run.neurons().carried()->wrong_rows() == 0);
      CHECK(run.outcome.integrity_errors == 0);
    }
  }
}

TEST_CASE("layouts, drives, overlaps, small memory and host memory change no token") {
  const Prompts expected = dense(kPrompts, 10);
  const auto check = [&](const host::LlmInAFlash& system, std::uint32_t drives = 1, bool through_host = false) {
    FlashRun run(system, kPrompts, 10, {}, {}, drives);
    run.setup.plan.through_host = through_host;
    CHECK(run.tokens() == expected);
    CHECK(run.neurons().carried()->wrong_rows() == 0);
  };
  for (const FlashTechnique technique : {FlashTechnique::hybrid, FlashTechnique::predictor, FlashTechnique::bundling}) {
    host::LlmInAFlash packed = system_of(technique);
    packed.flash.layout = host::RecordAlignment::packed;
    check(packed);
    host::LlmInAFlash overlapping = packed;
    overlapping.flash.overlap_flash = overlapping.flash.overlap_memory = true;
    check(overlapping, 4, true);
  }
  // Most of the windows do not fit: the oldest neurons leave and are read again.
  host::LlmInAFlash tight = system_of(FlashTechnique::bundling);
  FlashRun roomy(tight, kPrompts, 10);
  std::size_t most = 0;
  experiment::GenerationHooks hooks;
  hooks.operation = [&](const host::OperationRecord& record) {
    if (record.kind == host::OpKind::insert_records)
      most = std::max(most, roomy.neurons().in_memory()->latest(*record.tag.layer).active.size());
  };
  CHECK(roomy.tokens(hooks) == expected);
  tight.flash.memory_share = Ratio::of(most + most / 20, 1024);
  FlashRun small(tight, kPrompts, 10);
  CHECK(small.tokens() == expected);
  CHECK(small.neurons().in_memory()->loaded() > roomy.neurons().in_memory()->loaded());
}

TEST_CASE("neurons that are predicted to fire and do not, or the other way round: tokens of the same masks in memory") {
  const auto half = std::make_shared<EverySecondNeuron>();
  const host::LlmInAFlash system = system_of(FlashTechnique::bundling);
  for (const std::uint32_t window : {1u, 3u, 5u}) {
    CAPTURE(window);
    host::LlmInAFlash windowed = system;
    windowed.flash.window = window;
    FlashRun in_flash(windowed, kPrompts, 12, {}, half);
    const Prompts tokens = in_flash.tokens();
    CHECK(tokens == masked(*half, kPrompts, 12, window));
    CHECK(tokens != dense(kPrompts, 12));
  }
}

TEST_CASE("a corrupted record makes a wrong token, and the run says which row") {
  const Prompts expected = dense(kPrompts, 12);
  FlashRun run(system_of(FlashTechnique::bundling), kPrompts, 12);
  const host::FlashWeights& weights = run.neurons().weights();
  experiment::GenerationHooks hooks;
  platform::Platform* platform = nullptr;
  hooks.before_start = [&](platform::Platform& p) { platform = &p; };
  bool done = false;
  hooks.operation = [&](const host::OperationRecord& record) {
    if (done || record.kind != host::OpKind::embed) return;
    done = true;
    // The down column of neurons of layer 0 that fire: exponents of weights become large.
    csd_model::Drive& drive = platform->drive(0);
    for (std::uint32_t neuron = 0; neuron < 1024; neuron += 2) {
      const Bytes at = weights.directory().address(LayerId{0}, neuron, 1);
      const std::uint64_t page = FlashRun::drive().geometry.page_size.value;
      const std::uint64_t bit = (at.value % page) * 8 + 14;
      drive.backing_store().flip_bit(drive.block_ftl().lookup(ftl::LogicalPage{at.value / page}), bit);
    }
  };
  CHECK(run.tokens(hooks) != expected);
  CHECK(done);
  CHECK(run.neurons().carried()->wrong_rows() > 0);
  CHECK(run.neurons().carried()->first_wrong() == "layer 0, neuron 0, matrix 1");
}

TEST_CASE("naive: the reads of a step take its bytes over the drive's rate, and the parts add up to the step") {
  const auto m = metrics({"system.technique=naive"});
  // All weights in fp16 but the position table. Each of three kinds of data of a layer, and the head, fills its last
  // block in part. Of each table one row is read: it is in one block.
  const double bytes = m["flash_bytes_per_step"], weights = m["weight_bytes"];
  const double read = weights - 4096.0 * 512 * 2 + 2 * 4096;
  CHECK(bytes >= read);
  CHECK(bytes < read + 13 * 4096);
  const double parts = m["flash_io_s_per_step"].get<double>() + m["compute_s_per_step"].get<double>();
  CHECK(parts == Approx(m["tpot_s"].get<double>()).epsilon(1e-6));
  CHECK(m["memory_management_s_per_step"] == 0);
  // The arrays are the bound: 16 planes that read 4 KiB in 50 us each.
  const double rate = bytes / m["flash_io_s_per_step"].get<double>();
  CHECK(rate <= 16 * 4096 / 50e-6);
  CHECK(rate > 0.9 * 16 * 4096 / 50e-6);
  const auto hybrid = metrics({"system.technique=hybrid"});
  CHECK(hybrid["flash_bytes_per_step"].get<double>() == Approx(weights / 2).epsilon(0.01));
}

TEST_CASE("each technique reads less or faster than the one before it") {
  std::vector<double> bytes, seconds;
  for (const char* technique : {"naive", "hybrid", "predictor", "windowing", "bundling"}) {
    const auto m = metrics(
        {std::string("system.technique=") + technique, "platform.device.nvme.block_size=512 B", "system.chunk=32 KiB"});
    bytes.push_back(m["flash_bytes_per_step"]);
    seconds.push_back(m["flash_io_s_per_step"]);
    const double parts = m["flash_io_s_per_step"].get<double>() + m["compute_s_per_step"].get<double>() +
                         m["memory_management_s_per_step"].get<double>();
    CHECK(parts == Approx(m["tpot_s"].get<double>()).epsilon(1e-6));
  }
  for (std::size_t i = 1; i < bytes.size(); ++i) CHECK(seconds[i] < seconds[i - 1]);
  for (std::size_t i = 1; i < 4; ++i) CHECK(bytes[i] < bytes[i - 1]);
}

TEST_CASE("what a window loads is s(k + 1) - s(k) of the neurons") {
  for (const std::uint32_t window : {1u, 3u}) {
    const auto m =
        metrics({"system.window=" + std::to_string(window), "workload.output_tokens=120", "system.memory_share=1"});
    const host::FlashParameters defaults;
    const host::LocalityModel model({.active = defaults.active_share.value(),
                                     .concentration = defaults.concentration.value(),
                                     .persistence = defaults.persistence.value()},
                                    2048, 1);
    const double loaded = m["neurons_loaded_per_step"];
    // 119 steps: the first ones load s(1), s(2) - s(1)...
    double expected = 0;
    for (std::uint32_t step = 0; step < 119; ++step) {
      const std::uint32_t before = std::min(step, window);
      expected += model.active_within(before + 1) - model.active_within(before);
    }
    CHECK(loaded == Approx(6 * 2048 * expected / 119).epsilon(0.04));
  }
}

TEST_CASE("overlaps shorten a step, and through host memory it takes longer") {
  const double serial = metrics({})["tpot_s"];
  const std::string no_launches = "platform.gpu.kernel_launch=0 ns";
  CHECK(metrics({"system.overlap_flash=true", no_launches})["tpot_s"].get<double>() <
        metrics({no_launches})["tpot_s"].get<double>());
  CHECK(metrics({"system.overlap_memory=true"})["tpot_s"].get<double>() < serial);
  CHECK(metrics({"platform.device.nvme.transfer=host"})["tpot_s"].get<double>() > serial);
  CHECK(metrics({"system.technique=hybrid", "system.overlap_flash=true"})["tpot_s"].get<double>() <
        metrics({"system.technique=hybrid"})["tpot_s"].get<double>());
  // More drives share the layers, one after another.
  CHECK(metrics({"platform.device.count=2"})["flash_io_s_per_step"].get<double>() ==
        Approx(metrics({})["flash_io_s_per_step"].get<double>()).epsilon(0.01));
}

TEST_CASE("a sampled run agrees with the whole one") {
  for (const char* technique : {"hybrid", "bundling"}) {
    CAPTURE(technique);
    const std::vector<std::string> base = {std::string("system.technique=") + technique, "workload.output_tokens=200",
                                           "model.layers=12", "platform.device.flash.blocks_per_plane=192"};
    std::vector<std::string> sampled = base;
    sampled.push_back("simulation={sampling: {layers: 6, steps: 8}}");
    const auto whole = metrics(base), part = metrics(sampled);
    for (const char* const of : {"tpot_s", "flash_bytes_per_step", "flash_io_s_per_step"})
      CHECK(part[of].get<double>() == Approx(whole[of].get<double>()).epsilon(0.03));
    CHECK(part["page_ops"].get<double>() < whole["page_ops"].get<double>() / 2);
  }
  // A window that fills during the whole run: the first steps load many times what the last ones do.
  const std::vector<std::string> filling = {"system.window=60000", "system.memory_share=1",
                                            "workload.output_tokens=200"};
  std::vector<std::string> sampled = filling;
  sampled.push_back("simulation={sampling: {layers: 6, steps: 16}}");
  const auto whole = metrics(filling), part = metrics(sampled);
  for (const char* const of : {"tpot_s", "flash_bytes_per_step", "flash_io_s_per_step"})
    CHECK(part[of].get<double>() == Approx(whole[of].get<double>()).epsilon(0.03));
}

TEST_CASE("mistakes are located") {
  CHECK_THAT(refusal({"system.window=0"}), Contains("system.window"));
  CHECK_THAT(refusal({"system.chunk=5000 B"}), Contains("system.chunk") && Contains("multiple of the logical block"));
  CHECK_THAT(refusal({"system={kind: llm-in-a-flash, layout: packed, technique: predictor}", "system.chunk=4 KiB",
                      "model.hidden_size=544", "model.head_dim=68"}),
             Contains("system.chunk") && Contains("cannot hold a record"));
  CHECK_THAT(refusal({"system.threads=64000"}), Contains("system.threads") && Contains("4092 commands"));
  CHECK_THAT(refusal({"workload.batch=2", "workload.mini_batches=2"}), Contains("workload.mini_batches"));
  CHECK_THAT(refusal({"platform.gpu.count=2", "workload.batch=2"}), Contains("platform.gpu.count"));
  CHECK_THAT(refusal({"system.technique=naive", "system.window=3"}),
             Contains("system.window is not used") && Contains("naive"));
  CHECK_THAT(refusal({"system.memory=1 MiB", "system.memory_share=1/2"}), Contains("system.memory_share is not used"));
  CHECK_THAT(refusal({"system.memory=1 KiB"}), Contains("system.memory"));
  CHECK_THAT(refusal({"system={kind: llm-in-a-flash, overlap_flash: true, overlap_memory: true}"}),
             Contains("system.overlap_memory is not used"));
  CHECK_THAT(refusal({"system.predictor=trained"}), Contains("system.predictor is not used"));
  CHECK_THAT(refusal({"system.technique=naive", "simulation={sampling: {layers: 5, steps: 2}}"}),
             Contains("simulation.sampling.layers") && Contains("embeddings"));
  // A model that fits nowhere.
  CHECK_THAT(refusal({"platform.gpu.memory=20 MiB"}), Contains("platform.gpu.memory") && Contains("neurons in memory"));
  CHECK_THAT(refusal({"model.layers=600", "model.ffn_size=20000"}),
             Contains("block namespace") && Contains("llm-in-a-flash keeps weights"));
  const std::string carried =
      "system: {kind: llm-in-a-flash}\n"
      "workload: {kind: generation, batch: 1, input_tokens: 8, output_tokens: 3}\nsimulation: {data: carried}\n";
  CHECK_THAT(refusal({"model.path=models/llama-gqa-6m"}, carried),
             Contains("system.technique") && Contains("model.fatrelu"));
  CHECK(refusal({"model.path=models/llama-gqa-6m", "model.fatrelu=0.1"}, carried) == "accepted");
  CHECK_THAT(refusal({"model.path=models/opt-6m", "simulation.compare=[instinfer-dense]"}, carried),
             Contains("simulation.compare") && Contains("different drives"));
  CHECK_THAT(
      refusal({"model.path=models/opt-6m", "system={kind: gpu-only}", "simulation.compare=[llm-in-a-flash]"}, carried),
      Contains("simulation.compare") && Contains("different drives"));
  CHECK_THAT(refusal({"model.path=models/opt-6m", "system.threshold=0.3"}, carried),
             Contains("system.threshold is not used"));
  CHECK_THAT(refusal({"model.path=models/opt-6m", "system.active_share=0.2"}, carried),
             Contains("system.active_share is not used"));
  CHECK_THAT(refusal({"model.path=models/opt-6m", "system.technique=hybrid", "system.resident_share=0.1"}, carried),
             Contains("system.resident_share") && Contains("attention and embeddings"));
}

TEST_CASE("the trained predictor: tokens of the same masks in memory, and fewer reads than with all neurons") {
  const std::string text =
      "model: {path: models/opt-6m}\nsystem: {kind: llm-in-a-flash, memory_share: 1, predictor: trained}\n"
      "workload: {kind: generation, batch: 1, input_tokens: 20, output_tokens: 16}\n"
      "simulation: {data: carried, compare: [host, gpu-only]}\n";
  const auto document = [&](const std::vector<std::string>& sets) {
    scenario::RunResult result = experiment::run_scenario(load_flash(sets, text).scenario);
    CHECK(result.failure.empty());
    return result.document;
  };
  const auto trained = document({});
  CHECK(trained["comparison"]["host"]["tokens_equal"] == 16);
  CHECK(trained["comparison"]["host"]["attention_outputs_identical"] == true);
  CHECK(trained["comparison"]["gpu-only"]["attention_outputs_identical"] == false);
  const double loaded = trained["metrics"]["neurons_loaded_per_step"];
  CHECK(loaded < 6 * 1024 / 2);
  // A lower threshold predicts more neurons. (Memory has room for them.)
  CHECK(document({"system.threshold=0.1"})["metrics"]["neurons_loaded_per_step"].get<double>() > loaded);
  CHECK_THROWS_WITH(document({"system.predictor_rank=5000"}), Contains("rank"));
}

TEST_CASE("recorded neurons take the place of the model in timing runs") {
  const std::string recorded = "simulation={sampling: off, neurons: tests/data/neurons/small.json}";
  const auto m = metrics({recorded, "model.ffn_size=512", "system.window=1", "system.memory_share=1"});
  // Two layers of the file for six of the model, two tokens in turn. The first step loads all neurons of its token,
  // each other one those that the token before it lacks: 4 in one layer; 1 and 3 in turn in the other.
  CHECK(m["neurons_loaded_per_step"].get<double>() == Approx(3 * (7.0 + 15 * 4 + 5 + 8 * 1 + 7 * 3) / 16));
  CHECK_THAT(refusal({recorded, "system.active_share=0.3"}), Contains("system.active_share is not used"));
  CHECK_THAT(refusal({recorded, "system.technique=hybrid"}), Contains("simulation.neurons is not used"));
  CHECK_THAT(refusal({"simulation.neurons=nowhere.json"}), Contains("simulation.neurons"));
  CHECK_THROWS_WITH(metrics({recorded}), Contains("512 neurons per layer, the model 2048"));
}

TEST_CASE("more neurons than memory holds end a run with the parameter that is too small") {
  CHECK_THROWS_WITH(metrics({"system.memory_share=5 %"}),
                    Contains("system.active_share") && Contains("memory has room for 102"));
}

TEST_CASE("a carried scenario compares with dense decoding and with the host, gated models without a predictor, too") {
  for (const char* const model : {"models/opt-6m", "models/llama-gqa-6m"}) {
    const bool gated = std::string(model) != "models/opt-6m";
    const scenario::RunResult result = experiment::run_scenario(
        load_flash({std::string("model.path=") + model, gated ? "system.technique=hybrid" : "system.memory_share=1"},
                   "system: {kind: llm-in-a-flash}\n"
                   "workload: {kind: generation, batch: 2, input_tokens: 12, output_tokens: 8}\n"
                   "simulation: {data: carried, compare: [host, gpu-only]}\n")
            .scenario);
    CHECK(result.failure.empty());
    for (const char* const with : {"host", "gpu-only"}) {
      CHECK(result.document["comparison"][with]["tokens_equal"] == 16);
      CHECK(result.document["comparison"][with]["attention_outputs_identical"] == true);
    }
    CHECK(result.document["stats"]["wrong_records"] == 0);
  }
}

}  // namespace test_llm_in_a_flash
