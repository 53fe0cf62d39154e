// Sampled runs of InstInfer against the whole run, on a drive whose flushes drain in the background.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>

#include "host_runtime/core/sampling/estimator.h"
#include "tests/support/planner_support.h"

namespace test_sampled_run {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kPageTokens = 16, kWindow = 64;

/// One command at a time. Attending reads pages of full groups; what fills a group or a window leaves work behind that
/// takes a third of the drive until it is done, and all of it while the drive is idle.
class ToyDrive final : public OperationBackend {
 public:
  std::optional<SimTime> start(const Operation& op, SimTime now) override {
    if (op.kind == OpKind::append_kv) return SimTime{800'000};
    if (op.kind != OpKind::attend) return SimTime{op.kind == OpKind::sample ? 15'000 : 11'000};
    backlog_ = std::max<std::int64_t>(0, backlog_ - (now - idle_since_).ps);
    std::int64_t own = 40'000, left_behind = 0;
    for (const SequenceWork& s : std::get<DriveWork>(op.work).sequences) {
      own += 900 * (s.context() / kPageTokens) + 20 * s.context();
      if (s.context() % kPageTokens == 0) left_behind += 9'000;
      if (s.context() % kWindow == 0) left_behind += 50'000;
    }
    const std::int64_t shared = std::min(backlog_, own / 2);
    backlog_ += left_behind - shared;
    idle_since_ = now + SimTime{own + shared};
    return SimTime{own + shared};
  }

 private:
  std::int64_t backlog_ = 0;
  SimTime idle_since_;
};

/// Runs the groups of a plan one after another, each on a backend from `make_backend`.
template <class MakeBackend>
GenerationEstimate simulate(PlannerInputs in, const std::string& system, const KvGrouping& grouping,
                            const SamplingSettings& settings, const MakeBackend& make_backend) {
  const SamplingPlan plan(in.workload, in.model.layers, grouping, settings);
  GenerationEstimator estimator(plan, in.workload);
  SimTime now;
  for (const SampledGroup& group : plan.groups()) {
    in.span = group.span();
    in.model.layers = group.layers;
    auto backend = make_backend();
    auto planner = plan_of(system, in);
    Executor ex(*planner, backend, {.slots = drive_slots(1)});
    run(ex, now);
    now = ex.report().end;
    estimator.add(ex.report());
  }
  return estimator.result();
}

GenerationEstimate simulate(const PlannerInputs& in, const SamplingSettings& settings) {
  return simulate(in, "instinfer-sparf", {.page_tokens = kPageTokens, .window_tokens = kWindow}, settings,
                  [] { return ToyDrive(); });
}

}  // namespace

TEST_CASE("the noise of heads that are passed over counts once, their drift adds to it") {
  const auto with = [](double steps, double noise, double drift) {
    SamplingError error{.steps = steps, .layers = 0.002};
    error.add_heads(noise, drift);
    return error;
  };
  CHECK(with(0.007, 0.003, 0).decode() == Approx(0.009));
  CHECK(with(0.007, 0.003, 0).heads == Approx(0.003));
  CHECK(with(0.007, 0.003, 0.001).decode() == Approx(0.010));
  CHECK(with(0.002, 0.003, 0.001).decode() == Approx(0.006));  // steps that are all measured show no noise
  CHECK(with(0.002, 0.003, 0).steps == 0);
}

TEST_CASE("a sampled run lands within 1 % of the whole one") {
  const std::uint32_t mini_batches = GENERATE(1U, 2U);
  const std::uint32_t prompt_step = GENERATE(0U, 5U, 16U, 37U);
  const std::uint32_t layers = GENERATE(6U, 24U);
  CAPTURE(mini_batches, prompt_step, layers);
  std::vector<std::uint32_t> prompts;
  for (std::uint32_t i = 0; i < 8; ++i) prompts.push_back(200 + i * prompt_step);
  const PlannerInputs in = small_inputs(layers, prompts, 400, mini_batches);
  const GenerationEstimate whole = simulate(in, {.off = true});
  const GenerationEstimate sampled = simulate(in, {.cooldown = mini_batches > 1 ? 1U : 0U});
  INFO("relative difference " << sampled.times.decode_s / whole.times.decode_s - 1 << ", estimated "
                              << sampled.error.decode() << "; TTFT " << sampled.times.ttft_s / whole.times.ttft_s - 1);
  CHECK(sampled.times.decode_s == Approx(whole.times.decode_s).epsilon(0.006));
  CHECK(sampled.times.ttft_s == Approx(whole.times.ttft_s).epsilon(1e-6));
  for (std::size_t p = 0; p < kPathParts; ++p)
    CHECK(sampled.times.decode_path_s[p] == Approx(whole.times.decode_path_s[p]).margin(0.006 * whole.times.decode_s));
  CHECK(sampled.error.decode() < 0.02);
  CHECK(sampled.error.prefill < 1e-6);
}

TEST_CASE("layers that are not simulated take no less time than a resource works for them") {
  // Each layer takes 100 us, and something that falls behind works for 150 us of it: 40 layers show it, 6 do not.
  const PlannerInputs in = small_inputs(40, {64}, 200, 1);
  const SamplingPlan plan(in.workload, 40, {.page_tokens = kPageTokens}, {});
  REQUIRE_FALSE(plan.exact());
  const auto decode = [&](double work_per_layer_s) {
    GenerationEstimator estimator(plan, in.workload);
    SimTime now;
    for (const SampledGroup& group : plan.groups()) {
      PlannerInputs part = in;
      part.span = group.span();
      part.model.layers = group.layers;
      FunctionBackend backend(
          [](const Operation& op) { return op.kind == OpKind::attend ? SimTime::microseconds(100) : SimTime{}; });
      auto planner = plan_of("instinfer-dense", part);
      Executor ex(*planner, backend, {.slots = drive_slots(1)});
      run(ex, now);
      now = ex.report().end;
      estimator.add(ex.report(), std::vector<double>(group.measured, group.layers * work_per_layer_s));
    }
    return estimator.result().times.decode_s;
  };
  const double steps = in.workload.decode_steps();
  CHECK(decode(0) == Approx(steps * 40 * 100e-6));
  CHECK(decode(100e-6) == Approx(steps * 40 * 100e-6));
  // The layers of the simulation took what they took.
  CHECK(decode(150e-6) > steps * (5 * 100e-6 + 35 * 150e-6) * 0.999);
  CHECK(decode(150e-6) < steps * 40 * 150e-6);
}

TEST_CASE("layers that stray from an even pace show in the error of layers") {
  // Every fourth layer takes three times as long: five layers cannot tell, eighteen can.
  const auto decode = [](const SamplingSettings& settings) {
    return simulate(small_inputs(40, {64}, 200, 1), "instinfer-dense", {.page_tokens = kPageTokens}, settings, [] {
      return FunctionBackend([](const Operation& op) {
        if (op.kind != OpKind::attend) return SimTime{10};
        return SimTime{op.tag.layer->value % 4 == 2 ? 3'000 : 1'000};
      });
    });
  };
  const double whole = decode({.off = true}).times.decode_s;
  double last = 1;
  for (const std::uint32_t layers : {5U, 10U, 18U}) {
    const GenerationEstimate sampled = decode({.layers = layers});
    CAPTURE(layers, sampled.times.decode_s / whole - 1, sampled.error.layers);
    CHECK(std::abs(sampled.times.decode_s / whole - 1) <= sampled.error.decode());
    CHECK(sampled.error.layers < last);
    last = sampled.error.layers;
  }
  CHECK(last < 0.1);
}

TEST_CASE("a drive that slows down in the prefill is followed to its steady pace") {
  const auto ttft = [](const SamplingSettings& settings) {
    const auto slows_down = [] {  // a write buffer that holds three layers
      return FunctionBackend([](const Operation& op) {
        return op.kind == OpKind::append_kv ? SimTime{op.tag.layer->value < 3 ? 50 : 900} : SimTime{10};
      });
    };
    return simulate(small_inputs(30, {50}, 1, 1), "instinfer-dense", {.page_tokens = kPageTokens}, settings, slows_down)
        .times.ttft_s;
  };
  CHECK(ttft({.prefill_layers = 8}) == Approx(ttft({.off = true})).epsilon(1e-9));
}

TEST_CASE("the whole run through the estimator is the executor's own account") {
  const PlannerInputs in = small_inputs(3, {20, 40}, 30, 2);
  const SamplingPlan plan(in.workload, 3, {.page_tokens = kPageTokens}, {.off = true});
  GenerationEstimator estimator(plan, in.workload);
  ToyDrive drive;
  auto planner = plan_of("instinfer-dense", in);
  Executor ex(*planner, drive, {.slots = drive_slots(1)});
  run(ex, SimTime{12345});
  estimator.add(ex.report());
  const GenerationEstimate e = estimator.result();
  const GenerationTimes direct = generation_times(ex.report(), in.workload);
  CHECK(e.times.decode_s == Approx(direct.decode_s).epsilon(1e-12));
  CHECK(e.times.ttft_s == Approx(direct.ttft_s).epsilon(1e-12));
  for (std::size_t p = 0; p < kPathParts; ++p)
    CHECK(e.times.decode_path_s[p] == Approx(direct.decode_path_s[p]).margin(1e-15));
  CHECK(e.error.largest() == 0);
  CHECK(plan.statement() == "prefill and all 29 decode steps simulated, with 3 of 3 layers");
}

TEST_CASE("a report without a step that was to be measured is refused") {
  const PlannerInputs in = small_inputs(3, {20, 40}, 30, 2);
  const SamplingPlan plan(in.workload, 3, {.page_tokens = kPageTokens}, {.off = true});
  ToyDrive drive;
  auto planner = plan_of("instinfer-dense", in);
  Executor ex(*planner, drive, {.slots = drive_slots(1)});
  run(ex, SimTime{});
  const auto add = [&](const ExecutionReport& report) { GenerationEstimator(plan, in.workload).add(report); };
  ExecutionReport report = ex.report();
  REQUIRE(report.steps.size() == 30);
  CHECK_NOTHROW(add(report));
  report.steps.back().ended = false;
  CHECK_THROWS_WITH(add(report), Catch::Contains("decode step 28 was to be measured"));
  report = ex.report();
  report.steps.pop_back();
  CHECK_THROWS_WITH(add(report), Catch::Contains("decode step 28 was to be measured"));
}

}  // namespace test_sampled_run
