// InstInfer run with constant durations: the overlap that the paper describes, against closed forms.
#include <catch2/catch.hpp>

#include "host_runtime/core/systems/instinfer/instinfer.h"
#include "tests/support/planner_support.h"

namespace test_pipelines {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

struct Durations {
  std::int64_t inputs = 0, attention = 0, finish = 0, sample = 0, append = 0, attend = 0;
};

SimTime of(const Operation& op, const Durations& d) {
  switch (op.kind) {
    case OpKind::attention_inputs:
      return {d.inputs};
    case OpKind::attention:
      return {d.attention};
    case OpKind::finish_layer:
      return {d.finish};
    case OpKind::sample:
      return {d.sample};
    case OpKind::append_kv:
      return {d.append};
    case OpKind::attend:
      return {d.attend};
    default:
      return {};
  }
}

ExecutionReport simulate(const PlannerInputs& in, const Durations& d, std::uint32_t drive_commands = 1,
                         const InstinferDense& system = {}) {
  FunctionBackend backend([&](const Operation& op) { return of(op, d); });
  auto planner = system.plan(in);
  Executor ex(*planner, backend, {.slots = drive_slots(drive_commands)});
  run(ex);
  return ex.report();
}

}  // namespace

TEST_CASE("prefill: transfers hide behind computing, or computing behind transfers") {
  const std::uint32_t layers = 10;
  const PlannerInputs in = small_inputs(layers, {100}, 1, 1);
  // GPU-bound: layers one after another, K and V of the last still travel after its projections.
  ExecutionReport r = simulate(in, {.inputs = 2, .attention = 3, .finish = 5, .sample = 4, .append = 6});
  CHECK(r.steps[0].end.ps == 10 * 10 + 4);
  CHECK(r.end.ps == 10 * 10 + 4);
  r = simulate(in, {.inputs = 2, .attention = 3, .finish = 5, .append = 9});
  CHECK(r.end.ps == 9 * 10 + 2 + 9);
  // Drive-bound, two layers of buffers: transfers back to back from the first projections on.
  r = simulate(in, {.inputs = 2, .attention = 3, .finish = 5, .sample = 4, .append = 50});
  CHECK(r.end.ps == 2 + 10 * 50);
  CHECK(r.busy.at(Resource::drive(DriveIndex{0})).ps == 500);
  // The last layer starts when the third last has arrived; the first token does not wait for the rest.
  CHECK(r.steps[0].end.ps == 2 + 8 * 50 + 10 + 4);
  CHECK(r.steps[0].layer_end.back() == r.end);
  // One buffer: the next layer's projections wait for the transfer, so the two alternate.
  InstinferDense one_buffer;
  one_buffer.kv_buffers = 1;
  r = simulate(in, {.inputs = 2, .attention = 3, .finish = 5, .append = 50}, 1, one_buffer);
  CHECK(r.end.ps == 10 * (2 + 50));
}

TEST_CASE("decode without mini-batches: GPU and drive take turns") {
  const std::uint32_t layers = 6, tokens = 5;
  const PlannerInputs in = small_inputs(layers, {10, 12}, tokens, 1);
  const Durations d{.inputs = 3, .finish = 4, .sample = 5, .attend = 20};
  const ExecutionReport r = simulate(in, d);
  const std::int64_t step = layers * (3 + 20 + 4) + 5;
  for (std::size_t s = 1; s < tokens; ++s) CHECK(r.step_time(s).ps == step);
  // Every picosecond of the step is on the path: inside the layers all but the sampling.
  const PathBreakdown path = r.step_path(2);
  CHECK(path.layered[static_cast<std::size_t>(PathPart::gpu)].ps == layers * 7);
  CHECK(path.layered[static_cast<std::size_t>(PathPart::drive_other)].ps == layers * 20);
  CHECK(path.fixed[static_cast<std::size_t>(PathPart::gpu)].ps == 5);
}

TEST_CASE("decode with two mini-batches: the GPU works for one while the drive works for the other") {
  const std::uint32_t layers = 6, tokens = 9;
  const PlannerInputs in = small_inputs(layers, {10, 12}, tokens, 2);
  // Drive-bound: the drive never idles once it has begun, across layers and steps.
  ExecutionReport r = simulate(in, {.inputs = 3, .finish = 4, .sample = 5, .attend = 20});
  for (std::size_t s = 2; s < tokens; ++s) CHECK(r.step_time(s).ps == layers * 2 * 20);
  CHECK(r.busy.at(Resource::drive(DriveIndex{0})).ps == (tokens - 1) * layers * 2 * 20);
  // The path is the drive's alone: what scales with layers is everything.
  const PathBreakdown path = r.step_path(4);
  CHECK(path.layered[static_cast<std::size_t>(PathPart::drive_other)].ps == layers * 2 * 20);
  CHECK(path.total().ps == layers * 2 * 20);
  // GPU-bound: the GPU never idles.
  r = simulate(in, {.inputs = 13, .finish = 14, .sample = 5, .attend = 6});
  for (std::size_t s = 2; s < tokens; ++s) CHECK(r.step_time(s).ps == 2 * (layers * 27 + 5));
  // One mini-batch of the same work takes the sum, not the larger.
  r = simulate(small_inputs(layers, {10, 12}, tokens, 1), {.inputs = 6, .finish = 8, .sample = 10, .attend = 40});
  CHECK(r.step_time(4).ps == layers * (14 + 40) + 10);
}

TEST_CASE("mini-batches that do not overlap take the sum of their times, in prefill and decode") {
  const std::uint32_t layers = 6, tokens = 5;
  for (const std::uint32_t mini_batches : {1U, 2U, 3U}) {
    CAPTURE(mini_batches);
    PlannerInputs in = small_inputs(layers, {10, 12, 9}, tokens, mini_batches);
    in.overlap_mini_batches = false;
    const Durations d{.inputs = 3, .attention = 7, .finish = 4, .sample = 5, .append = 1, .attend = 20};
    const ExecutionReport r = simulate(in, d);
    const std::int64_t parts = mini_batches;
    CHECK(r.steps[0].end.ps == parts * (layers * (3 + 7 + 4) + 5));
    for (std::size_t s = 1; s < tokens; ++s) CHECK(r.step_time(s).ps == parts * (layers * (3 + 20 + 4) + 5));
    // The same operations, also in a span that starts in the middle.
    in.span = {.prefill = false, .first_step = 2, .decode_steps = 2};
    CHECK(simulate(in, d).end.ps == 2 * parts * (layers * (3 + 20 + 4) + 5));
    in.overlap_mini_batches = true;
    const ExecutionReport side_by_side = simulate(in, d);
    if (parts == 1) {
      CHECK(side_by_side.end.ps == 2 * (layers * (3 + 20 + 4) + 5));
    } else {
      CHECK(side_by_side.end.ps < 2 * parts * (layers * (3 + 20 + 4) + 5));
    }
  }
}

TEST_CASE("drives work side by side and a layer waits for the slowest") {
  const std::uint32_t layers = 4;
  PlannerInputs in = small_inputs(layers, {10}, 4, 1);
  in.drives = 4;
  FunctionBackend backend([&](const Operation& op) {
    return op.kind == OpKind::attend ? SimTime{10 + op.resource.index} : of(op, {.inputs = 1, .finish = 1});
  });
  auto planner = plan_of("instinfer-dense", in);
  Executor ex(*planner, backend, {});
  run(ex);
  CHECK(ex.report().step_time(2).ps == layers * (2 + 13));
  CHECK(ex.report().busy.at(Resource::drive(DriveIndex{0})).ps == 3 * layers * 10);
  CHECK(ex.report().busy.at(Resource::drive(DriveIndex{3})).ps == 3 * layers * 13);
}

TEST_CASE("the first decode step waits for K and V that are still travelling") {
  const PlannerInputs in = small_inputs(3, {100}, 3, 1);
  const ExecutionReport r = simulate(in, {.inputs = 2, .finish = 2, .append = 1000, .attend = 5}, 0);
  // With no limit at the drive transfers overlap: each ends 1000 after its projections.
  CHECK(r.steps[0].layer_end[0].ps == 1002);
  const std::int64_t first = r.steps[1].end.ps;
  CHECK(first >= r.steps[0].layer_end[2].ps);
  CHECK(r.step_time(2).ps == 3 * (2 + 5 + 2));
}

TEST_CASE("the path of decode begins where the prefill's ends") {
  const std::uint32_t layers = 5, tokens = 4;
  for (const std::uint32_t mini_batches : {1U, 2U})
    for (const std::int64_t append : {3, 40, 700}) {
      CAPTURE(mini_batches, append);
      const PlannerInputs in = small_inputs(layers, {100, 90}, tokens, mini_batches);
      const ExecutionReport r =
          simulate(in, {.inputs = 7, .attention = 9, .finish = 8, .sample = 50, .append = append, .attend = 20});
      CHECK(r.steps[0].path.total() == r.steps[0].end);
      for (std::size_t s = 1; s < tokens; ++s) {
        CHECK(r.steps[s].path.total() == r.steps[s].end - r.steps[0].end);
        CHECK(r.step_time(s) == r.steps[s].end - r.steps[s - 1].end);
        for (std::size_t p = 0; p < kPathParts; ++p) {
          CHECK(r.steps[s].path.layered[p] >= SimTime{});
          CHECK(r.steps[s].path.fixed[p] >= SimTime{});
        }
      }
    }
}

TEST_CASE("an operation that straddles the end of the prefill counts with its share") {
  // K and V travel for 100 from 2 on; the first token is out at 42, so 60 of 100 are decode's.
  const PlannerInputs in = small_inputs(1, {100}, 2, 1);
  struct Drive final : OperationBackend {
    std::optional<SimTime> start(const Operation& op, SimTime) override {
      if (op.resource.kind == ResourceKind::drive_kv) return std::nullopt;
      if (op.kind == OpKind::attention_inputs) return SimTime{2};
      return SimTime{op.kind == OpKind::sample ? 40 : 0};
    }
  } drive;
  auto planner = plan_of("instinfer-dense", in);
  Executor ex(*planner, drive, {});
  std::optional<OperationId> append, attend;
  ex.start({});
  ex.advance(SimTime{50});
  for (const Operation& op : all_operations(*plan_of("instinfer-dense", in))) {
    if (op.kind == OpKind::append_kv) append = op.id;
    if (op.kind == OpKind::attend) attend = op.id;
  }
  ex.complete(*append, SimTime{102}, {.link = SimTime{20}, .flash = SimTime{50}});
  ex.advance(SimTime{102});
  ex.complete(*attend, SimTime{112}, {.flash = SimTime{10}});
  while (!ex.finished()) ex.advance(ex.next_event());
  const PathBreakdown& path = ex.report().steps[1].path;
  CHECK(path.total().ps == 112 + 40 - 42);
  CHECK(path.layered[static_cast<std::size_t>(PathPart::kv_link)].ps == 12);
  CHECK(path.layered[static_cast<std::size_t>(PathPart::flash)].ps == 30 + 10);
  CHECK(path.layered[static_cast<std::size_t>(PathPart::drive_other)].ps == 18);
}

}  // namespace test_pipelines
