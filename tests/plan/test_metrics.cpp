#include <catch2/catch.hpp>

#include "base/error.h"
#include "host_runtime/core/plan/metrics.h"
#include "tests/support/planner_support.h"

namespace test_metrics {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

TEST_CASE("metrics follow from the times") {
  GenerationTimes t{.batch = 64, .output_tokens = 1024, .decode_steps = 1023, .ttft_s = 50, .decode_s = 2046};
  t.decode_path_s[static_cast<std::size_t>(PathPart::flash)] = 1500;
  t.decode_path_s[static_cast<std::size_t>(PathPart::kv_link)] = 100;
  t.decode_path_s[static_cast<std::size_t>(PathPart::engine)] = 300;
  t.decode_path_s[static_cast<std::size_t>(PathPart::gpu)] = 146;
  const GenerationMetrics m = generation_metrics(t);
  CHECK(m.tokens_per_s == Approx(64 * 1024 / 2096.0));
  CHECK(*m.decode_tokens_per_s == Approx(32));
  CHECK(m.ttft_s == 50);
  CHECK(*m.tpot_s == Approx(2));
  CHECK(*m.decode_step_s == Approx(2));
  CHECK(*m.kv_access_share == Approx(1600 / 2046.0));
}

TEST_CASE("without decode its figures are absent, not zero") {
  const GenerationMetrics m = generation_metrics({.batch = 2, .output_tokens = 1, .ttft_s = 4, .decode_s = 0});
  CHECK(m.tokens_per_s == Approx(0.5));
  CHECK_FALSE(m.decode_tokens_per_s);
  CHECK_FALSE(m.tpot_s);
  CHECK_FALSE(m.decode_step_s);
  CHECK_FALSE(m.kv_access_share);
}

TEST_CASE("times of a run: the prefill until the first tokens, then the steps") {
  const PlannerInputs in = small_inputs(2, {10, 20, 30}, 5, 1);
  FunctionBackend backend([](const Operation& op) { return SimTime{op.kind == OpKind::sample ? 7 : 100}; });
  auto planner = plan_of("instinfer-dense", in);
  Executor ex(*planner, backend, {});
  run(ex, SimTime{1000});
  const GenerationTimes t = generation_times(ex.report(), in.workload);
  CHECK(t.batch == 3);
  CHECK(t.ttft_s == Approx((100 + 2 * 300 + 7) * 1e-12));
  CHECK(t.decode_s == Approx(4 * (100 + 2 * 300 + 7) * 1e-12));
  BatchLengths longer = in.workload;
  longer.output_tokens = 6;
  CHECK_THROWS_AS(generation_times(ex.report(), longer), InternalError);
}

}  // namespace test_metrics
