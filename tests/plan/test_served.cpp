// Requests that arrive while others run: the steps of the scheduler against a simple reference, waits of the executor,
// and that nothing of a request is left when it has ended.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/plan/step_scheduler.h"
#include "host_runtime/core/plan/tensor_ledger.h"
#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "tests/support/planner_support.h"

namespace test_served {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kLayers = 3;

BatchLengths requests(std::vector<std::uint32_t> prompts, std::vector<std::uint32_t> outputs,
                      std::vector<SimTime> arrivals, std::uint32_t places) {
  BatchLengths work = BatchLengths::with_outputs(std::move(prompts), std::move(outputs));
  for (std::size_t i = 0; i < arrivals.size(); ++i) work.requests.at(i).arrival = arrivals[i];
  work.arrive = true;
  work.places = places;
  return work;
}

BatchLengths random_requests(Rng& rng, std::int64_t most_gap) {
  const std::size_t count = 1 + rng.below(12);
  std::vector<std::uint32_t> prompts(count), outputs(count);
  std::vector<SimTime> arrivals;
  SimTime at;
  for (std::size_t i = 0; i < count; ++i) {
    prompts[i] = 1 + static_cast<std::uint32_t>(rng.below(20));
    outputs[i] = 1 + static_cast<std::uint32_t>(rng.below(7));
    at += SimTime{static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(most_gap)))};
    arrivals.push_back(at);
  }
  return requests(prompts, outputs, arrivals, 1 + static_cast<std::uint32_t>(rng.below(5)));
}

PlannerInputs inputs_of(BatchLengths work, std::uint32_t mini_batches = 1) {
  PlannerInputs in{.model = small_model(kLayers), .workload = std::move(work)};
  in.mini_batches = mini_batches;
  return in;
}

using Held = std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>>;

/// Iteration-level scheduling in a few lines: first come, first served; prefill before decode.
struct Reference {
  const BatchLengths& work;
  std::size_t next = 0;
  std::map<std::uint32_t, std::uint32_t> running = {};  ///< request -> tokens generated

  bool idle() const { return running.empty(); }
  Held step(SimTime now) {
    Held held;
    while (next < work.size() && work.requests[next].arrival <= now && running.size() < work.places) {
      const auto request = static_cast<std::uint32_t>(next++);
      running[request] = 0;
      held.emplace(request, 0, work.requests[request].prompt);
    }
    const bool prefill = !held.empty();
    for (auto& [request, generated] : running) {
      if (prefill != (generated == 0)) continue;
      if (!prefill) held.emplace(request, work.requests[request].prompt + generated - 1, 1);
      ++generated;
    }
    std::erase_if(running, [&](const auto& r) { return r.second == work.requests[r.first].output; });
    return held;
  }
};

/// Which sequences the drives hold, besides.
class ServedBackend final : public LedgerBackend {
 public:
  using LedgerBackend::LedgerBackend;
  void end(const Operation& op) override {
    LedgerBackend::end(op);
    const auto* const work = std::get_if<SequencesWork>(&op.work);
    if (work == nullptr || op.resource.kind != ResourceKind::drive_kv) return;
    for (const SequenceId s : work->sequences) {
      const bool changed = op.kind == OpKind::create_kv ? in_drive_.insert(s).second : in_drive_.erase(s) == 1;
      CHECK(changed);
    }
  }
  std::size_t in_drive() const { return in_drive_.size(); }

 private:
  std::set<SequenceId> in_drive_;
};

}  // namespace

TEST_CASE("each step holds what a simple reference scheduler says") {
  Rng rng(5, "served");
  for (int trial = 0; trial < 200; ++trial) {
    const BatchLengths work = random_requests(rng, 40);
    const std::uint32_t mini_batches = 1 + static_cast<std::uint32_t>(rng.below(work.places));
    StepScheduler scheduler(work, {}, mini_batches);
    Reference reference{work};
    const SimTime start{1000};  // arrivals count from the first step
    SimTime now = start;
    for (std::uint32_t number = 0;;) {
      const auto decision = scheduler.next(now);
      if (decision.wait) {
        REQUIRE(reference.idle());
        CHECK(*decision.wait == start + work.requests[reference.next].arrival);
        now = *decision.wait;
        continue;
      }
      if (!decision.step) break;
      CHECK(decision.step->number == number++);
      Held held;
      std::set<std::uint32_t> places;
      for (std::size_t mb = 0; mb < decision.step->parts.size(); ++mb) {
        const StepPart& part = decision.step->parts[mb];
        if (!part.sequences) continue;
        CHECK(part.sequences->size() <= scheduler.shares()[mb].count);
        for (const StepSequence& s : *part.sequences) {
          held.emplace(s.sequence.value, s.first_token, s.tokens);
          const std::uint32_t place = scheduler.place_of(s.sequence);
          CHECK(places.insert(place).second);
          CHECK(place >= scheduler.shares()[mb].first);
          CHECK(place < scheduler.shares()[mb].first + scheduler.shares()[mb].count);
        }
      }
      CHECK(held == reference.step(now - start));
      now += SimTime{static_cast<std::int64_t>(1 + rng.below(30))};
    }
    CHECK(reference.idle());
    CHECK(reference.next == work.size());
  }
}

TEST_CASE("the executor waits for the next arrival, and a step begins when the one before has sampled") {
  const BatchLengths work = requests({4, 6}, {2, 1}, {SimTime{500}, SimTime{100'000}}, 2);
  auto planner = plan_of("gpu-only", inputs_of(work));
  FunctionBackend backend([](const Operation& op) { return SimTime{op.kind == OpKind::free_kv ? 0 : 10}; });
  Executor ex(*planner, backend, {});
  const auto records = run(ex, SimTime{7});
  // embed, 4 operations per layer in the prefill and 3 in decode, sample
  const std::int64_t prefill = 10 * (2 + 4 * kLayers), decode = 10 * (2 + 3 * kLayers);
  REQUIRE(ex.report().steps.size() == 3);
  CHECK(ex.report().steps[0].end.ps == 507 + prefill);
  CHECK(ex.report().steps[1].end.ps == 507 + prefill + decode);
  CHECK(ex.report().steps[2].end.ps == 100'007 + prefill);
  for (const OperationRecord& r : records) CHECK(r.start.ps >= 507);

  const Request first = planner->requests()[0], second = planner->requests()[1];
  CHECK(first.arrival.ps == 507);
  CHECK(first.admitted.ps == 507);
  CHECK(first.first_token.ps == 507 + prefill);
  CHECK(first.end.ps == 507 + prefill + decode);
  CHECK(first.generated == 2);
  CHECK(second.arrival.ps == 100'007);
  CHECK(second.admitted.ps == 100'007);
  CHECK(second.first_token.ps == 100'007 + prefill);
  CHECK(second.end == second.first_token);
  for (const Request& request : planner->requests()) CHECK(request.state == Request::State::ended);
}

TEST_CASE("the times of all requests are those of the operations that made their tokens") {
  Rng rng(8, "lives");
  for (int trial = 0; trial < 40; ++trial) {
    BatchLengths work = random_requests(rng, 4000);
    work.arrive = rng.below(2) == 1;
    const auto mini_batches = static_cast<std::uint32_t>(1 + rng.below(work.batch()));
    PlannerInputs in = inputs_of(work, mini_batches);
    if (!work.served()) in.span.decode_steps = work.decode_steps();
    auto planner = plan_of("gpu-only", in);
    FunctionBackend backend([&](const Operation& op) {
      return SimTime{op.kind == OpKind::free_kv ? 0 : 1 + static_cast<std::int64_t>(rng.below(30))};
    });
    Executor ex(*planner, backend, {});
    const SimTime start{static_cast<std::int64_t>(rng.below(9))};
    const auto records = run(ex, start);
    const std::span<const Request> requests = planner->requests();
    REQUIRE(requests.size() == work.size());
    for (const Request& request : requests) {
      std::vector<SimTime> tokens;
      std::optional<SimTime> began;
      for (const OperationRecord& r : records) {
        const auto is_in = [&](const StepSequence& s) { return s.sequence == request.id; };
        if (!r.tag.sequences || std::ranges::none_of(*r.tag.sequences, is_in)) continue;
        if (r.kind == OpKind::sample) tokens.push_back(r.end);
        began = std::min(began.value_or(r.start), r.start);
      }
      CHECK(request.arrival == (work.served() ? start + work.requests[request.id.value].arrival : start));
      CHECK(request.admitted == began);
      REQUIRE(tokens.size() == request.output);
      CHECK(request.generated == request.output);
      CHECK(request.first_token == tokens.front());
      CHECK(request.end == tokens.back());
      CHECK(request.state == Request::State::ended);
    }
  }
}

TEST_CASE("a request that arrives during a step is prefilled in the next one") {
  const std::int64_t prefill = 10 * (2 + 4 * kLayers);
  const BatchLengths work = requests({4, 6}, {5, 2}, {SimTime{}, SimTime{prefill + 1}}, 2);
  auto planner = plan_of("gpu-only", inputs_of(work));
  FunctionBackend backend([](const Operation& op) { return SimTime{op.kind == OpKind::free_kv ? 0 : 10}; });
  Executor ex(*planner, backend, {});
  run(ex);
  std::string phases;
  for (const StepRecord& step : ex.report().steps) phases += step.phase == Phase::prefill ? 'p' : 'd';
  CHECK(phases == "pdpddd");
}

TEST_CASE("a planner that waits must not emit, nor wait for the past") {
  struct Waits final : Planner {
    bool emits = false;
    SimTime until{};
    bool next_step(OperationSink& sink) override {
      if (emits) sink.add(OpKind::embed, Resource::gpu(), {}, ComputeWork{}, {});
      sink.wait_until(until);
      return true;
    }
  };
  FunctionBackend backend([](const Operation&) { return SimTime{1}; });
  Waits planner;
  planner.until = SimTime{5};
  CHECK_THROWS_AS(Executor(planner, backend, {}).start(SimTime{5}), InternalError);
  planner.until = SimTime{6};
  planner.emits = true;
  CHECK_THROWS_AS(Executor(planner, backend, {}).start(SimTime{5}), InternalError);
}

TEST_CASE("a request alone takes the time of a batch of one") {
  for (const char* const name : {"instinfer-dense", "instinfer-sparf", "gpu-only"}) {
    CAPTURE(name);
    const auto time_of = [](const Operation& op) {
      const bool sequences = std::holds_alternative<SequencesWork>(op.work);
      return SimTime{sequences ? 0 : static_cast<std::int64_t>(1 + (static_cast<int>(op.kind) * 37) % 11)};
    };
    const auto ends = [&](const PlannerInputs& in) {
      auto planner = plan_of(name, in);
      FunctionBackend backend(time_of);
      Executor ex(*planner, backend, {});
      run(ex);
      std::vector<SimTime> times;
      for (const StepRecord& step : ex.report().steps) times.push_back(step.end);
      return times;
    };
    CHECK(ends(inputs_of(requests({9}, {5}, {SimTime{}}, 1))) == ends(small_inputs(kLayers, {9}, 5, 1)));
  }
}

TEST_CASE("every system frees what requests have used, whatever arrives when") {
  Rng rng(17, "arrivals");
  std::vector<std::function<std::unique_ptr<Planner>(const PlannerInputs&)>> plans;
  for (const char* const name : {"instinfer-dense", "instinfer-sparf", "gpu-only", "host-kv", "deepspeed-host"})
    plans.emplace_back([name](const PlannerInputs& in) { return plan_of(name, in); });
  for (const bool rewritten : {false, true})
    plans.emplace_back([rewritten](const PlannerInputs& in) {
      return std::make_unique<TieredKvPlanner>(
          in,
          TieredKv{.shards = tier_heads(in.model.kv_heads, Ratio::of(1, 4), Ratio::of(1, 4)), .rewritten = rewritten});
    });
  for (std::size_t p = 0; p < plans.size(); ++p)
    for (int trial = 0; trial < 25; ++trial) {
      CAPTURE(p, trial);
      const BatchLengths work = random_requests(rng, 3000);
      auto planner = plans[p](inputs_of(work, 1 + static_cast<std::uint32_t>(rng.below(work.places))));
      ServedBackend backend(rng.next());
      Executor ex(*planner, backend, {});
      std::uint64_t sampled = 0;
      for (const OperationRecord& r : run(ex))
        if (r.kind == OpKind::sample) sampled += r.tag.sequences->size();
      CHECK(sampled == work.generated());
      CHECK(backend.kept() == Bytes{});
      CHECK(backend.in_drive() == 0);
    }
}

TEST_CASE("files of requests that arrive: places do not overlap, and each reads what it wrote") {
  Rng rng(23, "files");
  for (int trial = 0; trial < 30; ++trial) {
    const BatchLengths work = random_requests(rng, 3000);
    const bool rewritten = rng.below(2) == 1;
    TieredKvPlanner planner(inputs_of(work, 1 + static_cast<std::uint32_t>(rng.below(work.places))),
                            {.shards = tier_heads(4, {0, 1}, {0, 1}), .rewritten = rewritten});
    std::map<std::string, Bytes> sizes;
    for (const PlannedFile& file : planner.files()) sizes[file.name] = file.size;
    // What each row of a file holds: {request, token}.
    std::map<std::string, std::map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>>> files;
    const std::uint64_t row = small_model().kv_bytes_per_token_and_head().value * 4;
    FunctionBackend backend([&](const Operation& op) {
      const auto* const work_of = std::get_if<FileWork>(&op.work);
      if (work_of == nullptr) return SimTime{3};
      for (std::size_t i = 0; i < work_of->ranges.size(); ++i) {
        const FileRange& range = work_of->ranges[i];
        const StepSequence& s = op.tag.sequences->at(i);
        CHECK(range.offset + range.size <= sizes.at(work_of->file));
        const std::uint64_t count = range.size.value / row;
        const bool reads = op.kind == OpKind::read_file;
        CHECK(count == (reads ? s.first_token : rewritten ? s.context() : s.tokens));
        const std::uint64_t first = reads ? 0 : s.context() - count;
        for (std::uint64_t t = 0; t < count; ++t) {
          auto& at = files[work_of->file][range.offset.value / row + t];
          const std::pair value{s.sequence.value, first + t};
          if (reads)
            CHECK(at == value);
          else
            at = value;
        }
      }
      return SimTime{5};
    });
    Executor ex(planner, backend, {});
    run(ex);
  }
}

}  // namespace test_served
