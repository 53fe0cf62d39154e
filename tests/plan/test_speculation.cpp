// Speculative decoding: steps that verify a draft, and windows that keep the neurons of accepted tokens.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <set>

#include "base/rng.h"
#include "host_runtime/core/features/neurons/flash_neurons.h"
#include "host_runtime/core/plan/step_scheduler.h"
#include "tests/support/planner_support.h"

namespace test_speculation {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

BatchLengths drafted(std::uint32_t tokens, std::uint32_t drafts, double acceptance) {
  return {{9, 5}, tokens, {.draft_tokens = drafts, .acceptance = acceptance, .draft_time = {}}};
}

FlashWeights weights_of(std::uint32_t window, const LocalityParams& locality = {}) {
  const FlashOptions options{
      .window = window, .memory_share = {1, 1}, .memory = {}, .predictor_rank = {}, .locality = locality};
  return {options, {.model = small_model(), .workload = {}, .block_size = {512}}};
}

}  // namespace

TEST_CASE("a step yields the accepted draft tokens and one more") {
  CHECK(Speculation{.draft_tokens = 4, .acceptance = 0}.gain() == 1);
  CHECK(Speculation{.draft_tokens = 4, .acceptance = 1}.gain() == 5);
  // The mean over all numbers of accepted tokens: a of them with probability p^a (1 - p), all four with p^4.
  const double p = 0.372;
  double mean = 5 * std::pow(p, 4);
  for (int accepted = 0; accepted < 4; ++accepted) mean += (accepted + 1) * std::pow(p, accepted) * (1 - p);
  CHECK(Speculation{.draft_tokens = 4, .acceptance = p}.gain() == Approx(mean));
  CHECK(mean == Approx(1.58).epsilon(0.002));
}

TEST_CASE("steps that verify drafts end when all tokens are there, and each attends over what was accepted") {
  for (const std::uint32_t tokens : {2u, 3u, 17u, 256u})
    for (const double acceptance : {0.0, 0.372, 0.9, 1.0}) {
      CAPTURE(tokens, acceptance);
      const BatchLengths workload = drafted(tokens, 4, acceptance);
      const double gain = workload.speculation.gain();
      CHECK(workload.decode_steps() >= (tokens - 1) / gain);
      CHECK(workload.decode_steps() < (tokens - 1) / gain + 1);
      StepScheduler scheduler(workload, {.prefill = true, .first_step = 0, .decode_steps = workload.decode_steps()}, 1);
      const auto prefill = scheduler.next({}).step;
      CHECK(prefill->phase == Phase::prefill);
      scheduler.sampled(Phase::prefill, 0, *prefill->parts[0].sequences, {});
      std::uint32_t before = 1;
      for (std::uint32_t i = 0; i < workload.decode_steps(); ++i) {
        const auto step = scheduler.next({}).step;
        REQUIRE(step);
        const std::uint32_t generated = workload.generated_before(i);
        CHECK(generated - before <= std::ceil(i == 0 ? 0 : gain));
        CHECK(generated < tokens);
        before = generated;
        const auto& sequences = *step->parts[0].sequences;
        REQUIRE(sequences.size() == 2);
        for (const std::uint32_t s : {0u, 1u}) {
          CHECK(sequences[s].sequence == SequenceId{s});
          CHECK(sequences[s].first_token == workload.requests[s].prompt + generated - 1);
          CHECK(sequences[s].tokens == 5);
        }
        scheduler.sampled(Phase::decode, step->number, sequences, SimTime{i + 1});
        CHECK(scheduler.requests()[1].generated == workload.generated_before(i + 1));
      }
      CHECK_FALSE(scheduler.next({}).step);
      CHECK(workload.generated_before(workload.decode_steps()) == tokens);
      CHECK(scheduler.requests()[1].state == Request::State::ended);
      CHECK(scheduler.requests()[1].end == SimTime{workload.decode_steps()});
      // A span that starts in the middle continues there.
      if (workload.decode_steps() < 3) continue;
      StepScheduler later(workload, {.prefill = false, .first_step = 2, .decode_steps = 1}, 1);
      CHECK((*later.next({}).step->parts[0].sequences)[0].first_token == 9 + workload.generated_before(2) - 1);
    }
}

TEST_CASE("sequences advance by what is accepted, each at its own pace, and never beyond their output") {
  struct Script final : TokenProgress {
    std::uint32_t generated(SequenceId s) const override { return of[s.value].first; }
    std::uint32_t proposed(SequenceId s) const override { return of[s.value].second; }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> of{{1, 3}, {1, 0}};
  } script;
  const BatchLengths workload = drafted(6, 3, 0);
  StepScheduler scheduler(workload, {.prefill = true, .first_step = 0, .decode_steps = workload.decode_steps()}, 1,
                          &script);
  const auto next = [&] { return *scheduler.next({}).step; };
  CHECK(next().phase == Phase::prefill);
  const ScheduledStep first = next();
  const auto check = [](const StepSequence& s, std::uint32_t sequence, std::uint32_t first_token,
                        std::uint32_t tokens) {
    CHECK(s.sequence.value == sequence);
    CHECK(s.first_token == first_token);
    CHECK(s.tokens == tokens);
  };
  check(first.parts[0].sequences->at(0), 0, 9, 4);
  check(first.parts[0].sequences->at(1), 1, 5, 1);
  CHECK(first.parts[0].kept == 9 + 4 + 5 + 1);
  script.of = {{4, 1}, {2, 2}};  // two of three were accepted
  scheduler.sampled(Phase::decode, first.number, *first.parts[0].sequences, {});
  CHECK(scheduler.requests()[0].generated == 4);
  const ScheduledStep second = next();
  check(second.parts[0].sequences->at(0), 0, 12, 2);
  check(second.parts[0].sequences->at(1), 1, 6, 3);
  script.of = {{6, 0}, {3, 0}};  // the first sequence has all its tokens and stays in the cache
  const ScheduledStep third = next();
  REQUIRE(third.parts[0].sequences->size() == 1);
  check(third.parts[0].sequences->at(0), 1, 7, 1);
  CHECK(third.parts[0].kept == 9 + 5 + 7 + 1);
  script.of = {{6, 0}, {6, 0}};
  CHECK_FALSE(scheduler.next({}).step);
}

TEST_CASE("memory holds the window over kept tokens and what the step itself needs: against sets") {
  const std::uint64_t seed = GENERATE(take(5, random(1, 1'000'000)));
  CAPTURE(seed);
  Rng rng(seed, "speculation");
  for (const std::uint32_t window : {1u, 3u, 7u}) {
    FlashNeurons neurons(weights_of(window));
    std::deque<std::set<std::uint32_t>> kept_tokens;
    std::set<std::uint32_t> held;
    std::uint64_t loaded = 0;
    for (int step = 0; step < 200; ++step) {
      std::set<std::uint32_t> active;
      std::vector<std::vector<std::uint32_t>> kept(1 + rng.below(5));
      const std::size_t rejected = rng.below(4);
      for (std::size_t token = 0; token < kept.size() + rejected; ++token) {
        std::set<std::uint32_t> of_token;
        for (std::uint64_t i = rng.below(30); i > 0; --i) of_token.insert(static_cast<std::uint32_t>(rng.below(256)));
        active.insert(of_token.begin(), of_token.end());
        if (token >= kept.size()) continue;
        kept[token].assign(of_token.begin(), of_token.end());
        kept_tokens.push_back(of_token);
        if (kept_tokens.size() > window) kept_tokens.pop_front();
      }
      for (const std::uint32_t neuron : active) loaded += held.contains(neuron) ? 0 : 1;
      held = active;
      for (const auto& of_token : kept_tokens) held.insert(of_token.begin(), of_token.end());
      // A kept token's neurons that leave the window within the step are not held unless the step needs them.
      const std::vector<std::uint32_t> all(active.begin(), active.end());
      neurons.step(LayerId{0}, all, kept);
      REQUIRE(neurons.memory(LayerId{0}).used() == held.size());
      for (const std::uint32_t neuron : held) CHECK(neurons.memory(LayerId{0}).contains(neuron));
    }
    CHECK(neurons.loaded() == loaded);
  }
}

TEST_CASE("if all drafts are accepted, a step loads s(k + 2 drafts + 1) - s(k + drafts)") {
  const LocalityParams locality{.active = 0.1, .concentration = 2, .persistence = 0.4};
  const LocalityModel model(locality, 256, 1);
  constexpr std::uint32_t kSteps = 400, kWindow = 5;
  const auto loaded = [&](std::uint32_t drafts, double acceptance) {
    ModelledNeurons neurons(weights_of(kWindow, locality), 3);
    neurons.speculate({.draft_tokens = drafts, .acceptance = acceptance, .draft_time = {}}, 3);
    neurons.skip_to(10, 3, 1);
    const std::uint64_t before = neurons.neurons()->loaded();
    neurons.skip_to(10 + kSteps, 3, 1);
    return double(neurons.neurons()->loaded() - before) / (3 * kSteps);
  };
  for (const std::uint32_t drafts : {0u, 1u, 4u}) {
    // Accepted drafts join the window with the next step, when that is known, and older tokens leave then.
    const std::uint32_t held = kWindow + drafts;
    const double expected = 256 * (model.active_within(held + drafts + 1) - model.active_within(held));
    CHECK(loaded(drafts, 1) == Approx(expected).epsilon(0.05));
  }
  // Rejected tokens are loaded, too: a step costs more than one token and less than the tokens of the draft apart.
  CHECK(loaded(4, 0) > 1.5 * loaded(0, 0));
  CHECK(loaded(4, 0) < 5 * loaded(0, 0));
  // Tokens of the chain: if it hardly changes, so do the neurons, although drafts are rejected.
  const LocalityParams steady{.active = 0.1, .concentration = 2, .persistence = 0.999};
  ModelledNeurons neurons(weights_of(kWindow, steady), 3);
  neurons.speculate({.draft_tokens = 4, .acceptance = 0.5, .draft_time = {}}, 3);
  neurons.skip_to(50, 3, 1);
  CHECK(double(neurons.neurons()->loaded()) < 3 * 256 * 2 * (steady.active + 250 * 0.001 * 0.2));
}

}  // namespace test_speculation
