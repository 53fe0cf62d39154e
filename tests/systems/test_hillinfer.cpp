// HillInfer's plan: every token moves as the pools say, bytes add up, and tensors are where operations read them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/core/systems/hillinfer/hillinfer.h"
#include "tests/support/planner_support.h"
#include "tests/support/resolver.h"

namespace test_hillinfer {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kLayers = 3;
const std::vector<std::uint32_t> kPrompts = {40, 9, 25};

Hillinfer system_of(PoolPolicy pools = PoolPolicy::hit_table, ScoreAggregate aggregate = ScoreAggregate::sum_raw) {
  Hillinfer system;
  system.aggregate = aggregate;
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
  ModelledPools pools(system.pooled_plan(in), in.model, std::make_unique<AnyTokens>());
  if (!in.span.prefill) pools.skip_to(in.span.first_step, kLayers, in.workload.prompts());
  Run out;
  FunctionBackend backend([&](const Operation& op) {
    out.resolved.push_back(op);
    return SimTime{op.resource.kind == ResourceKind::drive_kv ? drive_time : 10};
  });
  Router router;
  for (std::size_t kind = 0; kind < kResourceKinds; ++kind) router.add(static_cast<ResourceKind>(kind), backend);
  const host::RunFeatures features = csdsim::host::resolving([&](const Operation& op) { return pools.resolve(op); });
  router.set_features(features);
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
        for (const std::uint32_t drives : {1U, 3U})
          for (const ScoreAggregate aggregate : {ScoreAggregate::sum_raw, ScoreAggregate::per_head})
            for (const std::int64_t drive_time : {1, 50}) {
              PlannerInputs in = small_inputs(kLayers, kPrompts, 13, mini_batches);
              in.through_host = through_host;
              in.drives = drives;
              if (first > 0) in.span = {.prefill = false, .first_step = first, .decode_steps = 12 - first};
              CAPTURE(first, mini_batches, through_host, drives, aggregate, drive_time);
              CHECK_NOTHROW(run_of(system_of(PoolPolicy::hit_table, aggregate), in, drive_time));
            }
}

TEST_CASE("hillinfer: each drive gets every token once, in the order of its log, and scores all of it in every step") {
  std::uint32_t trial = 0;
  for (const PoolPolicy policy : {PoolPolicy::hit_table, PoolPolicy::naive})
    for (const bool through_host : {false, true}) {
      PlannerInputs in = small_inputs(kLayers, kPrompts, 30, 2);
      in.through_host = through_host;
      in.drives = 1 + trial % 3;
      const bool per_head = trial++ % 2 == 1;
      CAPTURE(policy, through_host, in.drives, per_head);
      const Run out = run_of(system_of(policy, per_head ? ScoreAggregate::per_head : ScoreAggregate::sum_raw), in);
      using Where = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
      std::map<Where, std::uint32_t> log;
      const auto place = [](const Operation& op, SequenceId sequence, HeadRange heads) {
        return Where{op.tag.layer->value, sequence.value, heads.first.value, op.resource.index};
      };
      std::uint64_t written = 0, scored = 0, to_gpu = 0, fetched = 0, attended = 0;
      for (const Operation& op : out.resolved) {
        if (op.resource.kind == ResourceKind::drive_kv && op.kind == OpKind::append_kv)
          for (const SequenceWork& s : std::get<DriveWork>(op.work).sequences) {
            std::uint32_t& logged = log[place(op, s.sequence, std::get<DriveWork>(op.work).heads)];
            REQUIRE(s.first_token.value == logged);
            logged += s.tokens;
            written += s.tokens;
          }
        if (const auto* const score = std::get_if<ScoreWork>(&op.work))
          for (const ScoreWork::Sequence& s : score->sequences) {
            REQUIRE(s.tokens() > 0);
            REQUIRE(s.tokens() <= 7);
            const std::uint32_t logged = log[place(op, s.sequence, score->heads)];
            REQUIRE(s.context <= logged);
            scored += s.tokens();
          }
        if (const auto* const fetch = std::get_if<FetchWork>(&op.work))
          for (const FetchWork::Sequence& s : fetch->sequences) {
            for (const TokenIndex token : s.tokens) REQUIRE(token.value < log[place(op, s.sequence, fetch->heads)]);
            fetched += s.tokens.size();
          }
        if (op.resource.kind == ResourceKind::host_to_gpu) to_gpu += std::get<LinkWork>(op.work).bytes.value;
        if (op.kind == OpKind::attention && op.tag.phase == Phase::decode)
          for (const StepSequence& s : *op.tag.sequences) attended += TokenBudget(Ratio{1, 4}).at(s.context()) - 1;
      }
      const std::uint32_t lists = per_head ? in.model.kv_heads : 1;
      const Bytes token{in.model.kv_bytes_per_token_and_layer().value / lists};
      attended *= lists;
      // The drives get their shares of each log: they differ by a token at most.
      for (const auto& [of, logged] : log) {
        auto [layer, sequence, head, drive] = of;
        if (drive > 0) {
          CHECK(log.at({layer, sequence, head, 0}) >= logged);
          CHECK(log.at({layer, sequence, head, 0}) <= logged + 1);
        }
      }
      CHECK(log.size() == std::size_t{kLayers} * kPrompts.size() * lists * in.drives);
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

TEST_CASE("hillinfer: the host reads two bytes for each entry of the hit tables that a step examines") {
  PooledKv pools({.chosen = Ratio{1, 4}, .pools = {.hot_tokens = 24, .pinned = Ratio{1, 10}, .kept_hot = Ratio{1, 5}}},
                 small_model(kLayers));
  AnyTokens importance;
  Operation update;
  update.kind = OpKind::update_pools;
  update.resource = Resource::host();
  std::vector<StepSequence> sequences = {{SequenceId{0}, 40, 1}, {SequenceId{1}, 25, 1}};
  update.tag = {Phase::decode, 0, LayerId{0}, MiniBatch{0}};
  for (const StepSequence& s : sequences) pools.start({s.sequence, LayerId{0}}, s.first_token);
  std::vector<std::uint32_t> chosen;
  for (std::uint32_t step = 0; step < 30; ++step) {
    std::uint64_t examined = 0;
    for (const StepSequence& s : sequences) {
      const std::uint32_t context = pools.pools({s.sequence, LayerId{0}}).tokens() + 1;
      importance.next(s.sequence, LayerId{0}, context, pools.chosen(context), chosen);
      const PoolMoves& moves = pools.step({s.sequence, LayerId{0}}, chosen).moves;
      // The important tokens, and a scan of all that are not pinned for each of promotions and demotions.
      const std::uint64_t unpinned = pools.pools({s.sequence, LayerId{0}}).first_pinned();
      REQUIRE(moves.examined >= chosen.size() + 2 * unpinned);
      REQUIRE(moves.examined <= chosen.size() + 4 * unpinned);
      examined += moves.examined;
    }
    update.tag.sequences = std::make_shared<const std::vector<StepSequence>>(sequences);
    const auto work = std::get<ComputeWork>(pools.resolve(update).value());
    CHECK(work.activations == Bytes{2 * examined});
    CHECK(work.launches == 1);
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

TEST_CASE("hillinfer: when a prompt is stored, host memory keeps its hot tokens only") {
  const PlannerInputs in = small_inputs(kLayers, kPrompts, 13, 1);
  const std::uint64_t hot = system_of().pooled_plan(in).pools.hot_tokens;
  REQUIRE((hot > 9 && hot < 25));
  std::size_t layers = 0;
  for (const Operation& op : run_of(system_of(), in).resolved) {
    if (op.kind != OpKind::update_pools) continue;
    REQUIRE(op.tensors.writes.size() == 1);
    // An update reads the pool that it writes.
    CHECK(std::ranges::find(op.tensors.reads, op.tensors.writes[0].name) != op.tensors.reads.end());
    if (op.tag.phase != Phase::prefill) continue;
    CHECK(op.tensors.writes[0].bytes == in.model.kv_bytes_per_token_and_layer() * (hot + 9 + hot));
    ++layers;
  }
  CHECK(layers == kLayers);
}

TEST_CASE("hillinfer: a choice has the positions of all tokens that a step attends to") {
  std::size_t choices = 0;
  for (const Operation& op : run_of(system_of(), small_inputs(kLayers, kPrompts, 13, 1)).resolved) {
    if (op.kind != OpKind::select_tokens) continue;
    std::uint64_t attended = 0, cached = 0;
    for (const StepSequence& s : *op.tag.sequences) {
      attended += TokenBudget(Ratio{1, 4}).at(s.context());
      cached += s.context() - 1;
    }
    REQUIRE(op.tensors.writes.size() == 1);
    CHECK(op.tensors.writes[0].bytes == Bytes{4 * attended});
    // It is made of a score and a position of every token.
    CHECK(std::get<ComputeWork>(op.work).activations == Bytes{4 * attended + 8 * cached});
    ++choices;
  }
  CHECK(choices == std::size_t{kLayers} * 12);
}

TEST_CASE("hillinfer: what drives bring to host memory leaves it in the same step") {
  for (const bool through_host : {false, true}) {
    PlannerInputs in = small_inputs(kLayers, kPrompts, 13, 2);
    in.through_host = through_host;
    in.drives = 2;
    const auto planner = system_of().plan(in);
    std::map<TensorName, std::uint32_t> there;  // the step of the fetch, by what host memory has
    std::size_t fetches = 0;
    for (const Operation& op : all_operations(*planner)) {
      if (const auto* const fetch = std::get_if<FetchWork>(&op.work); fetch && fetch->memory == Place::host()) {
        REQUIRE(there.emplace(op.tensors.writes.at(0).name, op.tag.step).second);
        ++fetches;
      }
      for (const TensorAt& drop : op.tensors.drops) {
        const auto found = there.find(drop.name);
        if (found == there.end() || drop.place != Place::host()) continue;
        CHECK(found->second == op.tag.step);
        there.erase(found);
      }
    }
    CAPTURE(through_host);
    CHECK(there.empty());
    // In each of 12 steps and layers, two mini-batches get promoted tokens from two drives, and cold ones if staged.
    CHECK(fetches == std::size_t{12} * kLayers * 2 * 2 * (through_host ? 2 : 1));
  }
}

TEST_CASE("hillinfer: operations wait for what they read, and the last block of scores is there") {
  for (const bool prefetch : {true, false}) {
    Hillinfer system = system_of();
    system.prefetch = prefetch;
    const auto planner = system.plan(small_inputs(kLayers, {40}, 6, 1));
    const std::vector<Operation> all = all_operations(*planner);
    // The operations of a kind in a layer of a decode step.
    const auto find = [&](OpKind kind, std::uint32_t step, std::uint32_t layer, ResourceKind where) {
      std::vector<const Operation*> found;
      for (const Operation& op : all)
        if (op.kind == kind && op.tag.phase == Phase::decode && op.tag.step == step && op.tag.layer == LayerId{layer} &&
            op.resource.kind == where)
          found.push_back(&op);
      return found;
    };
    const auto waits = [](const Operation* op, const Operation* before) {
      return std::ranges::find(op->deps, before->id) != op->deps.end();
    };
    for (std::uint32_t step = 0; step < 5; ++step)
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        CAPTURE(prefetch, step, layer);
        const Operation* const settled = find(OpKind::update_pools, step, layer, ResourceKind::host).at(0);
        CHECK(waits(settled, find(OpKind::append_kv, step, layer, ResourceKind::drive_kv).at(0)));
        const auto on_host = find(OpKind::score_kv, step, layer, ResourceKind::host);
        const auto on_drive = find(OpKind::score_kv, step, layer, ResourceKind::drive_kv);
        CHECK(on_drive.size() * 7 >= 40 + step);
        for (const auto& scores : {on_host, on_drive})
          for (const Operation* const op : scores)
            if (step > 0) CHECK(waits(op, find(OpKind::update_pools, step - 1, layer, ResourceKind::host).at(0)));
        for (const Operation* const merge : find(OpKind::merge_scores, step, layer, ResourceKind::host))
          CHECK(waits(merge, on_host.at(0)));
        // The next layer's queries read the input of this layer, which finish_layer replaces.
        const auto inputs = find(OpKind::attention_inputs, step, layer, ResourceKind::gpu);
        CHECK(inputs.size() == (prefetch && layer > 0 ? 2 : 1));
        if (prefetch && layer > 0)
          CHECK(waits(find(OpKind::finish_layer, step, layer - 1, ResourceKind::gpu).at(0), inputs.front()));
      }
  }
}

TEST_CASE("hillinfer solves the share of host memory from rates, within its bounds") {
  Hillinfer system;
  const ModelShape model = small_model(kLayers);
  const PlannerInputs in = small_inputs(kLayers, {400, 400}, 13, 1);
  CHECK_THROWS_AS(system.plan(in), InternalError);  // nobody has set rates
  PlatformRates rates;
  rates.host_to_gpu = {25'000'000'000};
  rates.host_attention = {1'000'000'000'000};
  rates.host_memory_bandwidth = {50'000'000'000};
  rates.host_memory = Bytes::gib(1);
  rates.drive.reads = {6'000'000'000};
  rates.drive.fetches = rates.drive.link = {3'200'000'000};
  rates.drive.scores = {1e12};
  system.choose(model, in.workload, rates);
  const std::uint64_t solved = system.pooled_plan(in).pools.hot_tokens;
  CHECK(solved > 413 / 2);
  CHECK(solved < 413);
  // A slower drive gets fewer tokens.
  rates.drive.reads = {600'000'000};
  system.choose(model, in.workload, rates);
  CHECK(system.pooled_plan(in).pools.hot_tokens > solved);
  // Host memory bounds the share, but not below what has to be there: the pinned tokens and those kept hot.
  const auto at = [&](Bytes memory) {
    rates.host_memory = memory;
    system.choose(model, in.workload, rates);
    const SystemNeeds needs = system.needs({.model = model, .workload = in.workload});
    Bytes used;
    for (const Resident& r : needs.residents)
      if (r.home == Place::host()) used += r.bytes;
    return std::pair(system.pooled_plan(in).pools.hot_tokens, used);
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
  CHECK(system.pooled_plan(part).pools.hot_tokens == system.pooled_plan(in).pools.hot_tokens);
}

TEST_CASE("hillinfer refuses what cannot be") {
  PlannerInputs in = small_inputs(kLayers, kPrompts, 13, 1);
  Hillinfer system = system_of();
  system.kv_buffers = 0;
  CHECK_THROWS_AS(system.plan(in), UserError);
  PooledPlan plan = system_of().pooled_plan(in);
  plan.lists = 3;  // four KV heads have three lists
  CHECK_THROWS_AS(HillinferPlanner(in, plan, true, {}), UserError);
}

}  // namespace test_hillinfer
