// Sequences that end at different steps, and requests that arrive: which steps there are, what they hold and move, and
// that every byte of K and V is freed.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/plan/metrics.h"
#include "host_runtime/core/plan/step_scheduler.h"
#include "host_runtime/core/plan/tensor_ledger.h"
#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "host_runtime/core/systems/host_kv/host_kv.h"
#include "tests/support/planner_support.h"

namespace test_ends {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kLayers = 3;

PlannerInputs own_inputs(std::vector<std::uint32_t> prompts, std::vector<std::uint32_t> outputs,
                         std::uint32_t mini_batches = 1) {
  PlannerInputs in{.model = small_model(kLayers),
                   .workload = BatchLengths::with_outputs(std::move(prompts), std::move(outputs))};
  in.span = {true, 0, in.workload.decode_steps()};
  in.mini_batches = mini_batches;
  return in;
}

/// Every system and place of K and V.
std::vector<std::function<std::unique_ptr<Planner>(const PlannerInputs&)>> all_plans() {
  std::vector<std::function<std::unique_ptr<Planner>(const PlannerInputs&)>> plans;
  for (const char* const name : {"instinfer-dense", "instinfer-sparf", "gpu-only", "host-kv", "deepspeed-host"})
    plans.emplace_back([name](const PlannerInputs& in) { return plan_of(name, in); });
  const auto tiers = [&](Ratio gpu, Ratio host, bool rewritten) {
    plans.emplace_back([=](const PlannerInputs& in) {
      return std::make_unique<TieredKvPlanner>(
          in, TieredKv{.shards = tier_heads(in.model.kv_heads, gpu, host), .rewritten = rewritten});
    });
  };
  tiers({0, 1}, {0, 1}, false);
  tiers(Ratio::of(1, 4), Ratio::of(1, 4), false);
  tiers({0, 1}, {0, 1}, true);
  plans.emplace_back([](const PlannerInputs& in) {
    HostKv system;
    system.attention = AttentionAt::host;
    return system.plan(in);
  });
  return plans;
}

std::vector<std::uint32_t> random_lengths(Rng& rng, std::size_t count, std::uint32_t most) {
  std::vector<std::uint32_t> lengths(count);
  for (std::uint32_t& length : lengths) length = 1 + static_cast<std::uint32_t>(rng.below(most));
  return lengths;
}

/// {sequence, tokens before, tokens added} of a step, over all mini-batches.
using Held = std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>>;
Held held(const ScheduledStep& step) {
  Held all;
  for (const StepPart& part : step.parts)
    if (part.sequences)
      for (const StepSequence& s : *part.sequences) all.emplace(s.sequence.value, s.first_token, s.tokens);
  return all;
}

}  // namespace

TEST_CASE("each decode step holds the sequences that have tokens left") {
  Rng rng(7, "lengths");
  for (int trial = 0; trial < 50; ++trial) {
    const std::size_t batch = 1 + rng.below(9);
    const auto prompts = random_lengths(rng, batch, 20), outputs = random_lengths(rng, batch, 12);
    const PlannerInputs in = own_inputs(prompts, outputs, 1 + static_cast<std::uint32_t>(rng.below(batch)));
    StepScheduler scheduler(in.workload, in.span, in.mini_batches);
    std::uint64_t kept_most = 0;
    std::vector<int> ended(batch);
    for (std::uint32_t step = 0; step < in.workload.output_tokens; ++step) {
      const auto decision = scheduler.next(SimTime{});
      REQUIRE(decision.step);
      Held wanted;
      for (std::uint32_t i = 0; i < batch; ++i)
        if (step == 0)
          wanted.emplace(i, 0, prompts[i]);
        else if (outputs[i] > step)
          wanted.emplace(i, prompts[i] + step - 1, 1);
      CHECK(held(*decision.step) == wanted);
      std::uint64_t kept = 0, left = 0;
      for (const StepPart& part : decision.step->parts) {
        kept += part.kept;
        left += part.left;
        for (const SequenceId s : part.ending) CHECK((++ended[s.value] == 1 && outputs[s.value] == step + 1));
      }
      kept_most = std::max(kept_most, kept);
      if (step + 1 == in.workload.output_tokens) CHECK(left == 0);
    }
    CHECK_FALSE(scheduler.next(SimTime{}).step);
    CHECK(std::ranges::count(ended, 1) == std::ptrdiff_t(batch));
    CHECK(kept_most == in.workload.longest_contexts());
  }
}

TEST_CASE("a uniform batch frees nothing, so that its plan is what it was") {
  for (const char* const name : {"instinfer-dense", "host-kv", "gpu-only"}) {
    auto planner = plan_of(name, small_inputs(kLayers, {5, 6}, 4, 2));
    for (const Operation& op : all_operations(*planner)) CHECK(op.kind != OpKind::free_kv);
  }
}

TEST_CASE("a batch whose sequences end takes the sum of its stages") {
  // An operation takes 100 ps and 1 ps per sequence; a step has embed, sample and three operations per layer.
  const auto time_of = [](const Operation& op) {
    return op.kind == OpKind::free_kv || op.kind == OpKind::append_kv ? SimTime{}
                                                                      : SimTime{100 + std::ssize(*op.tag.sequences)};
  };
  const PlannerInputs in = own_inputs({10, 20, 30, 5}, {6, 1, 3, 3});
  auto planner = plan_of("gpu-only", in);
  FunctionBackend backend(time_of);
  Executor ex(*planner, backend, {});
  run(ex);
  const auto step = [](std::int64_t sequences) { return (2 + 3 * std::int64_t{kLayers}) * (100 + sequences); };
  REQUIRE(ex.report().steps.size() == 6);
  CHECK(ex.report().end.ps == step(4) + 2 * step(3) + 3 * step(1));
  const GenerationTimes times = generation_times(ex.report(), in.workload);
  CHECK(times.tokens() == 6 + 1 + 3 + 3);
  const GenerationMetrics metrics = generation_metrics(times);
  CHECK(metrics.tokens_per_s == Approx(13 / ex.report().end.seconds()));
  CHECK(*metrics.decode_tokens_per_s == Approx(9 / ((2 * step(3) + 3 * step(1)) * 1e-12)));
}

TEST_CASE("K and V that cross the link are those of sequences that run") {
  Rng rng(3, "link");
  for (int trial = 0; trial < 20; ++trial) {
    const std::size_t batch = 1 + rng.below(6);
    const PlannerInputs in = own_inputs(random_lengths(rng, batch, 30), random_lengths(rng, batch, 9),
                                        1 + static_cast<std::uint32_t>(rng.below(batch)));
    auto planner = plan_of("host-kv", in);
    std::map<ResourceKind, std::uint64_t> moved;
    for (const Operation& op : all_operations(*planner))
      if (const auto* link = std::get_if<LinkWork>(&op.work)) moved[op.resource.kind] += link->bytes.value;
    std::uint64_t stored = 0, read = 0;
    for (std::size_t i = 0; i < batch; ++i) {
      const std::uint64_t prompt = in.workload.requests[i].prompt, steps = in.workload.requests[i].output - 1;
      stored += prompt + steps;
      read += steps * prompt + steps * (steps - 1) / 2;
    }
    const std::uint64_t token = in.model.kv_bytes_per_token().value;
    CHECK(moved[ResourceKind::gpu_to_host] == token * stored);
    CHECK(moved[ResourceKind::host_to_gpu] == token * read);
  }
}

TEST_CASE("every system frees all K and V, whatever the lengths and the durations") {
  Rng rng(11, "free");
  for (const auto& plan : all_plans())
    for (int trial = 0; trial < 12; ++trial) {
      const std::size_t batch = 1 + rng.below(6);
      const PlannerInputs in = own_inputs(random_lengths(rng, batch, 20), random_lengths(rng, batch, 8),
                                          1 + static_cast<std::uint32_t>(rng.below(batch)));
      auto planner = plan(in);
      LedgerBackend backend(rng.next());
      Executor ex(*planner, backend, {});
      std::uint64_t sampled = 0;
      for (const OperationRecord& r : run(ex))
        if (r.kind == OpKind::sample) sampled += r.tag.sequences->size();
      CHECK(sampled == in.workload.generated());
      CHECK(backend.kept() == Bytes{});
    }
}

TEST_CASE("drives free a sequence once, when all its commands have ended") {
  PlannerInputs in = own_inputs({4, 5, 6, 7}, {3, 1, 5, 3}, 2);
  in.drives = 2;
  auto planner = plan_of("instinfer-dense", in);
  LedgerBackend backend;
  Executor ex(*planner, backend, {});
  std::map<std::uint32_t, std::map<std::uint32_t, SimTime>> last;  // [drive][sequence]
  std::map<std::uint32_t, std::uint32_t> freed;
  for (const OperationRecord& r : run(ex)) {
    if (r.resource.kind != ResourceKind::drive_kv) continue;
    if (r.kind != OpKind::free_kv) {
      for (const StepSequence& s : *r.tag.sequences) {
        SimTime& end = last[r.resource.index][s.sequence.value];
        end = std::max(end, r.end);
      }
      continue;
    }
    ++freed[r.resource.index];
    for (const StepSequence& s : *r.tag.sequences)
      if (s.context() + 1 == in.workload.length_of(s.sequence.value))
        CHECK(r.start >= last[r.resource.index][s.sequence.value]);
  }
  // Mini-batch 0 has sequences 0 and 1, which end apart; in mini-batch 1 they do, too.
  CHECK(freed == std::map<std::uint32_t, std::uint32_t>{{0, 4}, {1, 4}});
}

TEST_CASE("lengths of a batch with ends") {
  const BatchLengths own = BatchLengths::with_outputs({10, 20, 30}, {1, 4, 2});
  CHECK(own.output_tokens == 4);
  CHECK(own.decode_steps() == 3);
  CHECK(own.generated() == 7);
  CHECK(own.kept_tokens() == 10 + 23 + 31);
  CHECK(own.longest_contexts() == 60);  // after the prefill; then 21 + 31, 22, 23
  CHECK(own.longest_sequence() == 32);
  CHECK(own.first(1).output_tokens == 1);
  CHECK_THROWS_AS(BatchLengths::with_outputs({1, 1}, {2}).validate(), InternalError);
  CHECK_THROWS_AS(BatchLengths::with_outputs({1, 1}, {2, 0}).validate(), UserError);
  const BatchLengths uniform{{10, 20}, 4};
  CHECK(uniform.longest_contexts() == 36);
  CHECK(uniform.kept_tokens() == 36);
}

}  // namespace test_ends
