// KVPR: the split against brute force, and the plan's bytes and dependencies.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/plan/tensor_ledger.h"
#include "host_runtime/core/systems/kvpr/kvpr.h"
#include "tests/support/planner_support.h"

namespace test_kvpr {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kLayers = 3;
const std::vector<std::uint32_t> kPrompts = {40, 9, 25};

/// Rates with which a good part of the tokens of small_model() is recomputed.
SplitRates balanced_rates() { return {.link = Bandwidth{1'000'000'000}, .gemm = {200'000'000'000}}; }

KvprPlan plan(Place activations = Place::host()) { return {.activations = activations, .rates = balanced_rates()}; }

/// K and V are four times the activations, so that recomputation pays: every query head has its own KV head.
PlannerInputs inputs(std::uint32_t mini_batches = 1, std::uint32_t output_tokens = 6) {
  PlannerInputs in = small_inputs(kLayers, kPrompts, output_tokens, mini_batches);
  in.model.kv_heads = in.model.heads;
  return in;
}

const LinkWork* link_work(const Operation& op) { return std::get_if<LinkWork>(&op.work); }

}  // namespace

TEST_CASE("the split is the best of all, for 10,000 random settings", "[kvpr]") {
  Rng rng(16, "split");
  std::uint64_t interior = 0, nothing = 0;
  for (int trial = 0; trial < 10'000; ++trial) {
    CAPTURE(trial);
    const std::uint64_t width = 64 << rng.below(8), group = 1 + rng.below(4), element = 1 + rng.below(2);
    const std::uint64_t kv_width = width / group;
    const bool on_gpu = rng.below(2) == 0;
    const SplitCosts costs{.activations = Bytes{on_gpu ? 0 : width * element},
                           .kv = Bytes{2 * kv_width * element},
                           .flops = 4 * width * kv_width};
    const SplitRates rates{.link = Bandwidth{(1 + rng.below(100)) * 1'000'000'000},
                           .gemm = {(1 + rng.below(1000)) * 1'000'000'000'000}};
    const std::uint64_t tokens = 1 + rng.below(400), most = rng.below(500), step = 1 + rng.below(17);
    const std::uint64_t split = split_point(costs, rates, tokens, most, step);
    REQUIRE(split <= std::min(tokens, most));
    REQUIRE(split % step == 0);
    double best = split_time(costs, rates, tokens, 0);
    for (std::uint64_t l = step; l <= std::min(tokens, most); l += step)
      best = std::min(best, split_time(costs, rates, tokens, l));
    const double time = split_time(costs, rates, tokens, split);
    REQUIRE(time <= best * (1 + 1e-12));
    const double gain = split_time(costs, rates, tokens, 0) / time;
    REQUIRE(gain >= 1);
    REQUIRE(gain <= most_split_gain(costs, rates) * (1 + 1e-12));
    if (!on_gpu) {
      REQUIRE(gain < 2);
      // Grouped queries: activations are at least as large as K and V.
      if (group >= 2) REQUIRE(split == 0);
    }
    interior += split > 0 && split < std::min(tokens, most);
    nothing += split == 0;
  }
  CHECK(interior > 1000);
  CHECK(nothing > 1000);
}

TEST_CASE("with rates by rows, the split is the best of all, too", "[kvpr]") {
  Rng rng(17, "split by rows");
  std::uint64_t others = 0;
  for (int trial = 0; trial < 2'000; ++trial) {
    CAPTURE(trial);
    const SplitCosts costs{.activations = Bytes{rng.below(2) * 512}, .kv = Bytes{1024}, .flops = 4 * 256 * 256};
    SplitRates rates{.link = Bandwidth{(1 + rng.below(100)) * 1'000'000'000},
                     .gemm = {(1 + rng.below(100)) * 1'000'000'000'000}};
    const SplitRates flat = rates;
    // Rates rise with the rows, or fall, but more rows take no less time.
    std::uint64_t rows = 0;
    for (std::uint64_t entries = 1 + rng.below(6); entries > 0; --entries) {
      const std::uint64_t last = rows, rate = rates.gemm.flop_per_second / (1 + rng.below(4));
      rows += 1 + rng.below(100);
      const std::uint64_t most = last == 0 ? rate : rates.by_rows.rates.back().flop_per_second * rows / last;
      rates.by_rows.rows.push_back(rows);
      rates.by_rows.rates.push_back({std::min(rate, most)});
    }
    REQUIRE(rates.by_rows.problem().empty());
    const std::uint64_t tokens = 1 + rng.below(400), most = rng.below(500), step = 1 + rng.below(17);
    const std::uint64_t split = split_point(costs, rates, tokens, most, step);
    REQUIRE(split <= std::min(tokens, most));
    double best = split_time(costs, rates, tokens, 0);
    for (std::uint64_t l = step; l <= std::min(tokens, most); l += step)
      best = std::min(best, split_time(costs, rates, tokens, l));
    REQUIRE(split_time(costs, rates, tokens, split) <= best * (1 + 1e-12));
    REQUIRE(split_time(costs, rates, tokens, 0) / split_time(costs, rates, tokens, split) <=
            most_split_gain(costs, rates) * (1 + 1e-12));
    others += split != split_point(costs, flat, tokens, most, step);
  }
  CHECK(others > 200);
}

TEST_CASE("rates by rows: time grows evenly between two entries", "[kvpr]") {
  const GemmRates rates{.rows = {10, 30}, .rates = {{100}, {150}}};  // 0.1 and 0.2 s for an operation of each row
  CHECK(rates.rate(10) == 100);
  CHECK(rates.rate(5) == 100);
  CHECK(rates.rate(20) == Approx(20 / 0.15));
  CHECK(rates.rate(30) == Approx(150));
  CHECK(rates.rate(31) == 150);
  CHECK(rates.highest().flop_per_second == 150);
  CHECK(rates.problem().empty());
  CHECK_THROWS_AS(GemmRates{}.rate(1), InternalError);
  const auto problem = [](std::vector<std::uint64_t> rows, std::vector<ComputeRate> of) {
    return GemmRates{std::move(rows), std::move(of)}.problem();
  };
  CHECK_THAT(problem({1, 2}, {{1}}), Catch::Contains("2 numbers of rows and 1 rates"));
  CHECK_THAT(problem({2, 2}, {{1}, {1}}), Catch::Contains("rising order"));
  CHECK_THAT(problem({1, 2}, {{1'000'000'000}, {3'000'000'000}}), Catch::Contains("take less time"));
  CHECK_THAT(problem({1}, {{0}}), Catch::Contains("has a 0"));
}

TEST_CASE("the split of the paper's latency workload", "[kvpr]") {
  // OPT-13B, 20 GB/s and 312 TFLOPS: h B / v = 0.33, a share of 1 / 1.33 of the tokens.
  const SplitCosts costs{.activations = {}, .kv = Bytes{2 * 5120 * 2}, .flops = 4ULL * 5120 * 5120};
  const SplitRates rates{.link = Bandwidth{20'000'000'000}, .gemm = {312'000'000'000'000}};
  const double share = 1 / (1 + 2.0 * 5120 * 20e9 / (2 * 312e12));
  CHECK(split_point(costs, rates, 1000, 1000) == Approx(share * 1000).margin(1));
  CHECK(split_point(costs, rates, 160, 128) == Approx(std::min(128.0, share * 160)).margin(1));
  CHECK(most_split_gain(costs, rates) == Approx(1 / (1 - share)));
  CHECK_THROWS_AS(split_point(costs, {}, 10, 10), InternalError);
  CHECK_THROWS_AS(split_point(costs, rates, 10, 10, 0), InternalError);
}

TEST_CASE("sequences share a split in proportion to their tokens, at most their prompts", "[kvpr]") {
  Rng rng(3, "shares of a split");
  for (int trial = 0; trial < 200; ++trial) {
    CAPTURE(trial);
    PlannerInputs in = inputs();
    std::vector<std::uint32_t> lengths(1 + rng.below(5));
    for (std::uint32_t& length : lengths) length = static_cast<std::uint32_t>(1 + rng.below(60));
    in.workload = {lengths, 40};
    in.span = {.prefill = true, .first_step = 0, .decode_steps = 39};
    KvprPlan how = plan();
    if (rng.below(2) == 0) how.share = Ratio{rng.below(11), 10};
    how.split_step = static_cast<std::uint32_t>(1 + rng.below(4));
    const KvprPlanner planner(in, how, {});
    const auto generated = static_cast<std::uint32_t>(rng.below(39));
    std::vector<StepSequence> sequences;
    std::uint64_t cached = 0, prompts = 0;
    for (std::uint32_t i = 0; i < in.workload.size(); ++i) {
      sequences.push_back({SequenceId{i}, in.workload.requests[i].prompt + generated, 1});
      cached += sequences.back().first_token;
      prompts += in.workload.requests[i].prompt;
    }
    KvprPlanner::Part part;
    part.sequences = sequences;
    const std::vector<std::uint32_t> split = planner.recomputed(part);
    REQUIRE(split.size() == sequences.size());
    for (std::size_t i = 0; i < split.size(); ++i) REQUIRE(split[i] <= in.workload.requests[i].prompt);
    const std::uint64_t sum = std::accumulate(split.begin(), split.end(), std::uint64_t{0});
    const std::uint64_t wanted =
        how.share ? std::min(prompts, how.share->round_of(cached) / how.split_step * how.split_step)
                  : split_point(split_costs(in.model, Place::host()), how.rates, cached, prompts, how.split_step);
    REQUIRE(sum == wanted);
  }
}

TEST_CASE("every decode step moves the activations of l tokens and K and V of the others", "[kvpr]") {
  const auto activations = GENERATE(Place::host(), Place::gpu());
  const std::uint32_t mini_batches = GENERATE(1, 2, 3);
  CAPTURE(place_name(activations), mini_batches);
  const PlannerInputs in = inputs(mini_batches);
  KvprPlanner planner(in, plan(activations), {});
  const std::uint64_t kv = in.model.kv_bytes_per_token_and_layer().value;
  const std::uint64_t x = std::uint64_t{in.model.width} * in.model.element_bytes;

  std::map<std::uint32_t, std::uint64_t> recomputed, cached;
  std::map<std::uint32_t, std::uint64_t> x_up, kv_up, kv_down;  // by step, in all layers
  std::uint64_t x_down = 0;
  for (const Operation& op : all_operations(planner)) {
    const LinkWork* const work = link_work(op);
    if (op.tag.phase == Phase::prefill) {
      if (work != nullptr && work->payload == LinkPayload::activations) x_down += work->bytes.value;
      continue;
    }
    if (op.kind == OpKind::recompute_kv) {
      const std::uint64_t tokens = op.tensors.writes.at(0).bytes.value / kv;
      recomputed[op.tag.step] += tokens;
      CHECK(std::get<ComputeWork>(op.work).flops ==
            4 * tokens * in.model.width * in.model.kv_heads * in.model.head_dim);
    }
    if (op.kind == OpKind::attention)
      for (const StepSequence& s : *op.tag.sequences) cached[op.tag.step] += s.first_token;
    if (work == nullptr) continue;
    if (op.resource.kind == ResourceKind::gpu_to_host)
      kv_down[op.tag.step] += work->bytes.value;
    else
      (work->payload == LinkPayload::kv ? kv_up : x_up)[op.tag.step] += work->bytes.value;
  }
  REQUIRE(cached.size() == in.workload.decode_steps());
  const std::uint64_t prompts = 40 + 9 + 25;
  CHECK(x_down == (activations == Place::host() ? x * prompts * kLayers : 0));
  for (const auto& [step, tokens] : cached) {
    CAPTURE(step);
    CHECK(recomputed[step] > 0);
    CHECK(recomputed[step] <= prompts * kLayers);
    CHECK(kv_up[step] == (tokens - recomputed[step]) * kv);
    CHECK(x_up[step] == (activations == Place::host() ? recomputed[step] * x : 0));
    CHECK(kv_down[step] == 3 * kv * kLayers);
  }
}

TEST_CASE("without grouped queries the plan recomputes, with them it copies everything", "[kvpr]") {
  PlannerInputs in = inputs();
  in.model.kv_heads = in.model.heads / 2;
  KvprPlanner planner(in, plan(), {});
  for (const Operation& op : all_operations(planner)) CHECK(op.kind != OpKind::recompute_kv);
  KvprPlanner on_gpu(in, plan(Place::gpu()), {});
  const std::vector<Operation> operations = all_operations(on_gpu);
  CHECK(std::ranges::count(operations, OpKind::recompute_kv, &Operation::kind) > 0);
}

TEST_CASE("recomputation waits for W_K and W_V, or for all weights if it is not hidden", "[kvpr]") {
  const bool hides = GENERATE(true, false);
  KvprPlan how = plan();
  how.hides_recomputation = hides;
  const WeightPlacement weights{.on_host = {1, 1}, .kv_first = hides};
  const PlannerInputs in = inputs(2);
  KvprPlanner planner(in, how, weights);
  std::map<OperationId, Operation> by_id;
  const std::vector<Operation> operations = all_operations(planner);
  for (const Operation& op : operations) by_id.emplace(op.id, op);
  Bytes copied;
  std::size_t recomputations = 0;
  for (const Operation& op : operations) {
    if (op.tag.phase == Phase::prefill) continue;
    const LinkWork* const work = link_work(op);
    if (work != nullptr && work->payload == LinkPayload::weights) copied += work->bytes;
    if (op.kind != OpKind::recompute_kv) continue;
    ++recomputations;
    Bytes waited;
    for (const OperationId id : op.deps)
      if (const LinkWork* const of = link_work(by_id.at(id)); of != nullptr && of->payload == LinkPayload::weights)
        waited += of->bytes;
    CHECK(waited == (hides ? in.model.recompute_kv(1).weights : in.model.layer_weight_bytes()));
  }
  CHECK(recomputations == 2ULL * kLayers * in.workload.decode_steps());
  CHECK(copied == in.model.layer_weight_bytes() * kLayers * in.workload.decode_steps());
}

TEST_CASE("a share of 0 is the plan of a cache in host memory, and a share of 1 recomputes the prompts", "[kvpr]") {
  KvprPlan how = plan();
  how.share = Ratio{0, 1};
  KvprPlanner none(inputs(), how, {});
  for (const Operation& op : all_operations(none)) CHECK(op.kind != OpKind::recompute_kv);
  how.share = Ratio{1, 1};
  KvprPlanner all(inputs(), how, {});
  const std::uint64_t kv = inputs().model.kv_bytes_per_token_and_layer().value;
  for (const Operation& op : all_operations(all)) {
    if (op.kind == OpKind::recompute_kv) CHECK(op.tensors.writes.at(0).bytes.value == (40 + 9 + 25) * kv);
    if (const LinkWork* const work = link_work(op); op.tag.phase == Phase::decode && work != nullptr &&
                                                    op.resource.kind == ResourceKind::host_to_gpu &&
                                                    work->payload == LinkPayload::kv)
      CHECK(work->bytes.value == 3 * op.tag.step * kv);
  }
}

TEST_CASE("software adds its time to each decode step of a mini-batch", "[kvpr]") {
  KvprPlan how = plan();
  how.software.per_step = SimTime::milliseconds(3);
  KvprPlanner planner(inputs(), how, {});
  for (const Operation& op : all_operations(planner)) {
    const auto* const work = std::get_if<ComputeWork>(&op.work);
    if (work == nullptr) continue;
    const bool ends_step = op.kind == OpKind::sample && op.tag.phase == Phase::decode;
    CHECK(work->software == (ends_step ? SimTime::milliseconds(3) : SimTime{}));
  }
}

TEST_CASE("logits of all tokens of the prompts are in memory when the first tokens are sampled", "[kvpr]") {
  const ModelShape model = inputs().model;
  for (const std::uint32_t copies : {0, 1, 2}) {
    CAPTURE(copies);
    KvprPlan how = plan();
    how.software.prompt_logits = copies;
    KvprPlanner planner(inputs(), how, {});
    std::uint32_t prefills = 0;
    for (const Operation& op : all_operations(planner)) {
      if (op.kind != OpKind::sample) continue;
      const std::vector<SizedTensor>& made = op.tensors.writes;
      if (copies == 0 || op.tag.phase != Phase::prefill) {
        CHECK(made.empty());
        continue;
      }
      ++prefills;
      std::uint64_t tokens = 0;
      for (const std::uint32_t prompt : inputs().workload.prompts()) tokens += prompt;
      const std::uint64_t logits = tokens * model.vocab * model.element_bytes;
      REQUIRE(made.size() == 1);
      CHECK(made[0].bytes.value == copies * logits);
      CHECK(op.tensors.drops.back().name == made[0].name);
      const auto& work = std::get<ComputeWork>(op.work);
      CHECK(work.flops == model.sample(tokens).flops);
      CHECK(work.activations.value == model.sample(tokens).activations.value + 2 * (copies - 1) * logits);
    }
    CHECK(prefills == (copies > 0 ? 1 : 0));
  }
}

}  // namespace test_kvpr
