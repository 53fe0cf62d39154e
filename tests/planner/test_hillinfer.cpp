// HillInfer's plan: every token moves as the pools say, bytes add up, and tensors are where operations read them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/planner/router.h"
#include "host_runtime/core/planner/systems/hillinfer/hillinfer.h"
#include "tests/planner/planner_support.h"

namespace test_hillinfer {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kLayers = 3;
const std::vector<std::uint32_t> kPrompts = {40, 9, 25};

Hillinfer system_of(PoolPolicy pools = PoolPolicy::hit_table) {
  Hillinfer system;
  system.ratio = Ratio{1, 4};
  system.host_share = Ratio{2, 5};
  system.chunk = 7;
  system.pools = pools;
  return system;
}

struct Run {
  std::vector<Operation> resolved;  ///< in the order of their starts
  std::vector<OperationRecord> records;
  PoolCounts counts;
};

Run run_of(const Hillinfer& system, PlannerInputs in, std::int64_t drive_time = 10) {
  const auto planner = system.plan(in);
  ModelledPools pools(*system.pooled_plan(in), in.model, std::make_unique<AnyTokens>());
  if (!in.span.prefill) pools.skip_to(in.span.first_step, kLayers, in.workload.prompt_tokens);
  Run out;
  FunctionBackend backend([&](const Operation& op) {
    out.resolved.push_back(op);
    return SimTime{op.resource.kind == ResourceKind::drive_kv ? drive_time : 10};
  });
  Router router;
  for (std::size_t kind = 0; kind < kResourceKinds; ++kind) router.add(static_cast<ResourceKind>(kind), backend);
  router.set_resolver([&](const Operation& op) { return pools.resolve(op); });
  Executor executor(*planner, router, {});
  out.records = run(executor);
  out.counts = pools.pools().counts();
  return out;
}

}  // namespace

TEST_CASE("hillinfer: tensors are where operations read them, from any step on, in any order of completion") {
  for (const std::uint32_t first : {0U, 3U, 11U})
    for (const std::uint32_t mini_batches : {1U, 3U})
      for (const bool through_host : {false, true})
        for (const std::int64_t drive : {1, 50}) {
          PlannerInputs in = small_inputs(kLayers, kPrompts, 13, mini_batches);
          in.through_host = through_host;
          if (first > 0) in.span = {.prefill = false, .first_step = first, .decode_steps = 12 - first};
          CAPTURE(first, mini_batches, through_host, drive);
          CHECK_NOTHROW(run_of(system_of(), in, drive));
        }
}

TEST_CASE("hillinfer: the drive gets every token once, in the order of its log, and scores all of it in every step") {
  for (const PoolPolicy policy : {PoolPolicy::hit_table, PoolPolicy::naive})
    for (const bool through_host : {false, true}) {
      PlannerInputs in = small_inputs(kLayers, kPrompts, 30, 2);
      in.through_host = through_host;
      const Run out = run_of(system_of(policy), in);
      std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> log;  // by layer and sequence
      std::uint64_t written = 0, scored = 0, to_gpu = 0, fetched = 0, attended = 0;
      for (const Operation& op : out.resolved) {
        if (op.resource.kind == ResourceKind::drive_kv && op.kind == OpKind::append_kv)
          for (const SequenceWork& s : std::get<DriveWork>(op.work).sequences) {
            std::uint32_t& logged = log[{op.tag.layer->value, s.sequence.value}];
            REQUIRE(s.first_token.value == logged);
            logged += s.tokens;
            written += s.tokens;
          }
        if (const auto* const score = std::get_if<ScoreWork>(&op.work))
          for (const ScoreWork::Sequence& s : score->sequences) {
            REQUIRE(s.tokens() > 0);
            REQUIRE(s.tokens() <= 7);
            const std::uint32_t logged = log[{op.tag.layer->value, s.sequence.value}];
            REQUIRE(s.context <= logged);
            scored += s.tokens();
          }
        if (const auto* const fetch = std::get_if<FetchWork>(&op.work))
          for (const FetchWork::Sequence& s : fetch->sequences) {
            for (const TokenIndex token : s.tokens) REQUIRE(token.value < log[{op.tag.layer->value, s.sequence.value}]);
            fetched += s.tokens.size();
          }
        if (op.resource.kind == ResourceKind::host_to_gpu) to_gpu += std::get<LinkWork>(op.work).bytes.value;
        if (op.kind == OpKind::attention && op.tag.phase == Phase::decode)
          for (const StepSequence& s : *op.tag.sequences) attended += TokenBudget(Ratio{1, 4}).at(s.context()) - 1;
      }
      const Bytes token = in.model.kv_bytes_per_token_and_layer();
      CHECK(written == out.counts.written);
      CHECK(scored == out.counts.drive_scores);
      CHECK(out.counts.wasted_scores > 0);
      CHECK(out.counts.wasted_scores < scored);
      CHECK(out.counts.important_hot + out.counts.important_cold == attended);
      const std::uint64_t copied = out.counts.important_hot + (through_host ? out.counts.important_cold : 0);
      CHECK(to_gpu == token.value * copied);
      // What has passed through host memory is not fetched again for a promotion.
      if (through_host) {
        CHECK(fetched >= out.counts.important_cold);
        CHECK(fetched < out.counts.important_cold + out.counts.promoted);
      } else {
        CHECK(fetched == out.counts.important_cold + out.counts.promoted);
      }
      CHECK(out.counts.promoted > 0);
      CHECK(out.counts.demoted > out.counts.promoted);
    }
}

TEST_CASE("hillinfer: two blocks of scores are under way at a time, and a step waits for the moves of the one before") {
  const Run out = run_of(system_of(), small_inputs(kLayers, kPrompts, 13, 1), 50);
  std::map<OperationId, const OperationRecord*> by_id;
  for (const OperationRecord& r : out.records) by_id[r.id] = &r;
  for (const OperationRecord& score : out.records) {
    if (score.kind != OpKind::score_kv || score.resource.kind != ResourceKind::drive_kv) continue;
    std::uint32_t beside = 0;
    for (const OperationRecord& other : out.records) {
      if (other.tag.layer != score.tag.layer) continue;
      const bool overlaps = other.start < score.end && score.start < other.end;
      if (other.kind == OpKind::score_kv && other.resource == score.resource) beside += overlaps;
      // The moves of any step of this layer.
      if (other.resource == score.resource && other.kind == OpKind::append_kv) REQUIRE(!overlaps);
      if (other.kind == OpKind::update_pools) REQUIRE(!(other.start < score.end && score.start < other.end));
    }
    REQUIRE(beside <= 2);  // with itself
  }
}

TEST_CASE("hillinfer solves the share of host memory from rates, within its bounds") {
  Hillinfer system;
  const ModelShape model = small_model(kLayers);
  const PlannerInputs in = small_inputs(kLayers, {400, 400}, 13, 1);
  CHECK_THROWS_AS(system.plan(in), InternalError);  // nobody has set rates
  std::uint64_t scored = 6'000'000'000;
  PlatformRates rates;
  rates.host_to_gpu = {25'000'000'000};
  rates.host_attention = {1'000'000'000'000};
  rates.host_memory_bandwidth = {50'000'000'000};
  rates.host_memory = Bytes::gib(1);
  rates.drive_scores = [&](const ModelShape&, ScorePrecision, std::uint32_t) { return Bandwidth{scored}; };
  rates.drive_fetches = [](const ModelShape&, double, std::uint32_t) { return Bandwidth{3'200'000'000}; };
  system.choose(model, in.workload, rates);
  const std::uint64_t solved = system.pooled_plan(in)->pools.hot_tokens;
  CHECK(solved > 413 / 2);
  CHECK(solved < 413);
  // A slower drive gets fewer tokens.
  scored = 600'000'000;
  system.choose(model, in.workload, rates);
  CHECK(system.pooled_plan(in)->pools.hot_tokens > solved);
  // Host memory bounds the share, but not below what has to be there: the pinned tokens and those kept hot.
  const auto at = [&](Bytes memory) {
    rates.host_memory = memory;
    system.choose(model, in.workload, rates);
    const SystemNeeds needs = system.needs(model, in.workload);
    Bytes used;
    for (const Resident& r : needs.residents)
      if (r.home == Home::host) used += r.bytes;
    return std::pair(system.pooled_plan(in)->pools.hot_tokens, used);
  };
  const Bytes passing = model.kv_bytes_per_token_and_layer() * (2 * 800 * 3);
  const auto [bounded, used] = at(passing + model.kv_bytes_per_token() * 500);
  CHECK(bounded == 250);
  CHECK(used == passing + model.kv_bytes_per_token() * 500);
  CHECK(at(passing).first == (413 + 9) / 10 + (413 + 4) / 5 + 1);
  // A sampled run has some of the layers, and the split of all.
  PlannerInputs part = in;
  part.model.layers = 1;
  part.whole_layers = kLayers;
  CHECK(system.pooled_plan(part)->pools.hot_tokens == system.pooled_plan(in)->pools.hot_tokens);
}

TEST_CASE("hillinfer refuses what cannot be") {
  PlannerInputs in = small_inputs(kLayers, kPrompts, 13, 1);
  Hillinfer system = system_of();
  system.kv_buffers = 0;
  CHECK_THROWS_AS(system.plan(in), UserError);
  in.drives = 2;
  CHECK_THROWS_AS(system_of().plan(in), UserError);
}

}  // namespace test_hillinfer
