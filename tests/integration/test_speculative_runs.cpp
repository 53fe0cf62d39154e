// Scenarios in which a decode step verifies a draft.
#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/flash_run.h"

namespace test_speculative_runs {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using host::FlashTechnique;

namespace {

constexpr std::uint32_t kTokens = 24;

/// The run verifies drafts of at most `most` tokens.
void verify_drafts(FlashRun& run, std::uint32_t most) {
  run.setup.plan.workload.speculation = {.draft_tokens = most, .acceptance = 0, .draft_time = {}};
}

std::string drafts(int tokens, const std::string& acceptance, const std::string& more = "") {
  return "workload.speculation={draft_tokens: " + std::to_string(tokens) + ", acceptance: " + acceptance + more + "}";
}

}  // namespace

TEST_CASE("a draft of accepted tokens divides the steps; a rejected one only costs") {
  const std::vector<std::string> base = {"system.memory_share=1"};
  const auto plain = metrics(base);
  const auto with = [&](const std::string& speculation) { return metrics({base.front(), speculation}); };
  const auto all = with(drafts(3, "1")), none = with(drafts(3, "0"));
  CHECK(all["tokens_per_step"] == 4);
  CHECK_FALSE(plain.contains("tokens_per_step"));
  CHECK(plain["tpot_s"] == plain["decode_step_s"]);
  CHECK(all["decode_step_s"].get<double>() == Approx(4 * all["tpot_s"].get<double>()));
  CHECK(all["tpot_s"].get<double>() < plain["tpot_s"].get<double>());
  CHECK(none["tpot_s"].get<double>() > plain["tpot_s"].get<double>());
  // Tokens of a step share neurons: four accepted ones load less than four steps.
  CHECK(all["neurons_loaded_per_step"].get<double>() > plain["neurons_loaded_per_step"].get<double>());
  CHECK(all["neurons_loaded_per_step"].get<double>() < 4 * plain["neurons_loaded_per_step"].get<double>());
  for (const auto& m : {all, none}) {
    const double parts = m["flash_io_s_per_step"].get<double>() + m["compute_s_per_step"].get<double>() +
                         m["memory_management_s_per_step"].get<double>();
    CHECK(parts == Approx(m["decode_step_s"].get<double>()).epsilon(1e-6));
  }
  const auto slow = with(drafts(3, "1", ", draft_time: 2 ms"));
  CHECK(slow["decode_step_s"].get<double>() - all["decode_step_s"].get<double>() == Approx(3 * 2e-3).epsilon(1e-6));
}

TEST_CASE("a sampled run with drafts agrees with the whole one") {
  const std::vector<std::string> base = {drafts(4, "1/2"), "workload.output_tokens=300", "model.layers=12",
                                         "system.memory_share=1", "platform.device.flash.blocks_per_plane=192"};
  std::vector<std::string> sampled = base;
  sampled.push_back("simulation={sampling: {layers: 6, steps: 8}}");
  const auto whole = metrics(base), part = metrics(sampled);
  CHECK(whole["tokens_per_step"].get<double>() == Approx(1 + 0.5 + 0.25 + 0.125 + 0.0625).epsilon(0.01));
  // Steps accept different numbers of tokens, so that few of them tell less than without drafts; the run says so.
  const double error = part["flash_bytes_error_estimate"];
  CHECK(error < 0.3);
  for (const char* const of : {"tpot_s", "flash_bytes_per_step", "flash_io_s_per_step"})
    CHECK(part[of].get<double>() == Approx(whole[of].get<double>()).epsilon(error));
  CHECK(part["page_ops"].get<double>() < whole["page_ops"].get<double>() / 2);
}

TEST_CASE("drafts change no token of a run that carries data") {
  for (const float temperature : {0.0f, 0.8f})
    for (const FlashTechnique technique : {FlashTechnique::naive, FlashTechnique::predictor, FlashTechnique::bundling})
      for (const std::uint32_t most : {1u, 4u}) {
        CAPTURE(temperature, static_cast<int>(technique), most);
        const host::SamplingOptions sampling{.temperature = temperature, .seed = 3};
        FlashRun run(system_of(technique), kPrompts, kTokens, sampling);
        verify_drafts(run, most);
        CHECK(run.tokens() == dense(kPrompts, kTokens, sampling));
        CHECK(run.neurons().carried()->wrong_rows() == 0);
        const host::TokenDrafts& done = run.drafts();
        CHECK(done.all_verified() > 0);
        CHECK(done.all_accepted() <= done.all_verified());
        // Greedy tokens repeat themselves after a while, drawn ones less.
        CHECK((temperature > 0 || done.all_accepted() > 0));
        // A step yields a token, and those that were accepted; the batch waits for its slowest sequence.
        CHECK(run.outcome.times.decode_steps <= kTokens - 1);
        CHECK(run.outcome.times.decode_steps >= kTokens - 1 - done.all_accepted());
        CHECK(2 * run.outcome.times.decode_steps + done.all_accepted() >= 2 * (kTokens - 1));
      }
}

TEST_CASE("one sequence: a step for each token that was not accepted, and the records of all tokens verified") {
  const Prompts one = {kPrompts[1]};
  FlashRun plain(system_of(FlashTechnique::predictor), one, kTokens);
  plain.tokens();
  FlashRun run(system_of(FlashTechnique::predictor), one, kTokens);
  verify_drafts(run, 3);
  CHECK(run.tokens() == plain.data.generated());
  const std::uint64_t accepted = run.drafts().all_accepted(), verified = run.drafts().all_verified();
  CHECK(run.outcome.times.decode_steps == kTokens - 1 - accepted);
  CHECK(accepted > 0);
  CHECK(accepted < verified);
  // Tokens of a step share neurons; those of rejected tokens are read for nothing.
  CHECK(run.neurons().in_memory()->loaded() <
        plain.neurons().in_memory()->loaded() * (kTokens - 1 + verified - accepted) / (kTokens - 1));
}

TEST_CASE("the window of a carried run goes on with the tokens that were accepted: against sets") {
  // The neurons depend on the token's place in its step alone, so that they are known here.
  using Neurons = std::set<std::uint32_t>;
  const auto neurons_of = [](std::uint32_t layer, std::uint32_t token) {
    Neurons neurons;
    for (std::uint32_t neuron = 0; neuron < 1024; ++neuron)
      if (counter_random(layer, neuron / 3 + token) % 2 == 0) neurons.insert(neuron);
    return neurons;
  };
  for (const std::uint32_t window : {1u, 2u}) {
    CAPTURE(window);
    host::LlmInAFlash system = system_of(FlashTechnique::bundling);
    system.flash.window = window;
    FlashRun run(system, {kPrompts[1]}, 2 * kTokens, {}, std::make_shared<EverySecondNeuron>());
    verify_drafts(run, 3);
    std::map<std::uint32_t, std::deque<Neurons>> kept;  // [layer]
    experiment::GenerationHooks hooks;
    std::uint64_t accepted = 0;
    hooks.operation = [&](const host::OperationRecord& record) {
      if (record.kind == host::OpKind::sample) accepted += run.data.accepted(SequenceId{0});
      if (record.kind != host::OpKind::insert_records) return;
      const std::uint32_t layer = record.tag.layer->value;
      auto& of_layer = kept[layer];
      for (std::uint32_t token = 1; token <= run.data.accepted(SequenceId{0}); ++token)
        of_layer.push_back(neurons_of(layer, token));
      of_layer.push_back(neurons_of(layer, 0));
      while (of_layer.size() > window) of_layer.pop_front();
      Neurons held;
      for (const Neurons& of_token : of_layer) held.insert(of_token.begin(), of_token.end());
      for (std::uint32_t token = 0; token <= run.drafts().proposed(SequenceId{0}).size(); ++token)
        held.merge(neurons_of(layer, token));
      const host::NeuronMemory& memory = run.neurons().in_memory()->memory(*record.tag.layer);
      REQUIRE(memory.used() == held.size());
      for (const std::uint32_t neuron : held) CHECK(memory.contains(neuron));
    };
    run.tokens(hooks);
    CHECK(run.drafts().all_accepted() == accepted);
    CHECK(run.drafts().all_accepted() > 0);
  }
}

TEST_CASE("drafts of scenarios: the same tokens as on the host, and the acceptance in the result") {
  for (const char* const predictor : {"oracle", "trained"}) {
    CAPTURE(predictor);
    const scenario::Resolved loaded =
        load_flash({}, std::string("model: {path: models/opt-6m}\nsimulation: {data: carried, compare: [host]}\n") +
                           "system: {kind: llm-in-a-flash, predictor: " + predictor +
                           ", memory_share: 1}\n"
                           "workload: {kind: generation, batch: 2, input_tokens: 12, output_tokens: 20, "
                           "speculation: {draft_tokens: 3}}\n");
    const scenario::RunResult result = experiment::run_scenario(loaded.scenario, {});
    CHECK(result.failure.empty());
    CHECK(result.document["comparison"]["host"]["tokens_equal"] == 40);
    const auto& m = result.document["metrics"];
    CHECK(m["draft_tokens_verified"].get<double>() > 0);
    CHECK(m.contains("draft_acceptance"));
    CHECK_FALSE(result.document["scenario"]["workload"]["speculation"].contains("acceptance"));
  }
}

TEST_CASE("drafts that nobody can verify are refused") {
  CHECK_THAT(refusal({drafts(4, "1/2"), "system={kind: gpu-only}"}),
             Contains("workload.speculation: gpu-only generates one token per step"));
  CHECK_THAT(refusal({drafts(4, "1/2"), "model.path=models/opt-6m"},
                     "system: {kind: llm-in-a-flash}\nsimulation: {data: carried}\n"
                     "workload: {kind: generation, batch: 1, input_tokens: 8, output_tokens: 3}\n"),
             Contains("workload.speculation.acceptance is not used: carried runs accept"));
  CHECK_THAT(refusal({drafts(0, "1/2")}), Contains("workload.speculation.draft_tokens"));
  CHECK_THAT(refusal({drafts(4, "1.5")}), Contains("workload.speculation.acceptance"));
}

}  // namespace test_speculative_runs
