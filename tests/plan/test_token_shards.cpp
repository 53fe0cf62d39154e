// Arrays of drives that divide the tokens of a sequence: the division, and InstInfer's plan for it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "host_runtime/core/plan/kv_division.h"
#include "host_runtime/core/plan/tensor_ledger.h"
#include "host_runtime/core/sampling/step_features.h"
#include "host_runtime/core/systems/instinfer/instinfer.h"
#include "tests/support/planner_support.h"

namespace test_token_shards {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

std::unique_ptr<Planner> by_tokens(const PlannerInputs& in) {
  InstinferDense system;
  system.shard = ShardBy::token;
  return system.plan(in);
}

PlannerInputs ragged_inputs(std::uint32_t drives) {
  PlannerInputs in = small_inputs(2, {3, 16, 1, 31, 8}, 7, 2);
  in.drives = drives;
  return in;
}

std::uint64_t sum_of(const std::vector<std::uint32_t>& values) {
  std::uint64_t sum = 0;
  for (const std::uint32_t v : values) sum += v;
  return sum;
}

}  // namespace

TEST_CASE("tokens over drives: contiguous prompts, and parts that differ by at most one token in every step") {
  for (std::uint32_t drives = 1; drives <= 9; ++drives)
    for (std::uint32_t prompt = 1; prompt <= 40; ++prompt) {
      const KvDivision division(ShardBy::token, 4, drives);
      CHECK(division.token_parts() == drives);
      CHECK(division.by_tokens() == (drives > 1));
      std::uint32_t next = 0;
      std::vector<std::uint32_t> held;
      for (std::uint32_t d = 0; d < drives; ++d) {
        const Share part = division.prompt(DriveIndex{d}, prompt);
        CHECK(division.heads(DriveIndex{d}) == HeadRange{KvHead{0}, 4});
        CHECK(part.first == next);
        next += part.count;
        held.push_back(part.count);
      }
      CHECK(next == prompt);
      for (std::uint32_t step = 0; step < 3 * drives; ++step) {
        std::uint32_t appending = 0;
        for (std::uint32_t d = 0; d < drives; ++d) {
          CHECK(division.tokens(DriveIndex{d}, prompt, step) == held[d]);
          if (!division.appends(DriveIndex{d}, step)) continue;
          ++appending;
          ++held[d];
        }
        CHECK(appending == 1);
        CHECK(*std::ranges::max_element(held) - *std::ranges::min_element(held) <= 1);
        CHECK(*std::ranges::max_element(held) == division.most_tokens(prompt + step + 1));
      }
    }
}

TEST_CASE("heads over drives: every drive has all tokens of its heads") {
  const KvDivision division(ShardBy::head, 8, 3);
  CHECK_FALSE(division.by_tokens());
  CHECK(division.token_parts() == 1);
  CHECK(division.most_heads() == 3);
  CHECK(division.most_tokens(17) == 17);
  for (const std::uint32_t d : {0U, 1U, 2U}) {
    CHECK(division.heads(DriveIndex{d}) == shard_heads(8, 3)[d]);
    CHECK(division.prompt(DriveIndex{d}, 10).count == 10);
    CHECK(division.appends(DriveIndex{d}, 5));
    CHECK(division.tokens(DriveIndex{d}, 10, 7) == 17);
  }
  CHECK_THROWS_WITH(KvDivision(ShardBy::head, 4, 5), Catch::Contains("shard: token"));
  CHECK_THROWS_AS(KvDivision(ShardBy::token, 4, 0), UserError);
}

TEST_CASE("every token of every sequence is attended to in one drive a step, and appended once") {
  for (const std::uint32_t drives : {2U, 3U, 4U, 7U, 40U}) {
    const PlannerInputs in = ragged_inputs(drives);
    // [layer, sequence, drive]: tokens in the drive so far
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> held;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> attended;  // [step, layer, seq]
    for (const Operation& op : all_operations(*by_tokens(in))) {
      if (op.resource.kind != ResourceKind::drive_kv) continue;
      const auto& work = std::get<DriveWork>(op.work);
      CHECK(work.heads == HeadRange{KvHead{0}, in.model.kv_heads});
      CHECK_FALSE(work.sequences.empty());
      CHECK(work.partial == (op.kind == OpKind::attend));
      for (const SequenceWork& s : work.sequences) {
        std::uint32_t& here = held[{op.tag.layer->value, s.sequence.value, op.resource.index}];
        CHECK(s.first_token.value == here);  // a drive numbers its tokens from 0
        CHECK(s.context() > 0);
        here += s.tokens;
        if (op.kind != OpKind::attend) continue;
        CHECK(s.tokens <= 1);
        CHECK(s.top_k == s.context());
        attended[{op.tag.step, op.tag.layer->value, s.sequence.value}] += s.context();
      }
    }
    CHECK(attended.size() == 6 * 2 * 5);
    for (const auto& [at, tokens] : attended)
      CHECK(tokens == in.workload.requests[std::get<2>(at)].prompt + std::get<0>(at) + 1);
    std::uint64_t all = 0;
    for (const auto& [at, tokens] : held) all += tokens;
    CHECK(all == in.model.layers * (sum_of(in.workload.prompts()) + 5 * 6));
  }
}

TEST_CASE("bytes of an array that divides tokens: K and V once, q and partial outputs once per drive") {
  for (const bool through_host : {false, true})
    for (const std::uint32_t drives : {2U, 3U, 7U}) {
      CAPTURE(through_host, drives);
      PlannerInputs in = ragged_inputs(drives);
      in.through_host = through_host;
      const HeadRange all{KvHead{0}, in.model.kv_heads};
      const std::uint64_t token = in.model.kv_bytes_per_token_and_layer().value, q = in.model.query_bytes(all).value;
      std::uint64_t appended = 0, to_drive = 0, from_drive = 0, rows = 0, down = 0, up = 0;
      std::map<std::uint32_t, std::uint64_t> kv_of_drive;
      for (const Operation& op : all_operations(*by_tokens(in))) {
        if (op.kind == OpKind::transfer)
          (op.resource.kind == ResourceKind::gpu_to_host ? down : up) += std::get<LinkWork>(op.work).bytes.value;
        if (op.resource.kind != ResourceKind::drive_kv) continue;
        const auto& work = std::get<DriveWork>(op.work);
        if (op.kind == OpKind::append_kv) {
          std::uint64_t tokens = 0;
          for (const SequenceWork& s : work.sequences) tokens += s.tokens;
          CHECK(work.to_drive.value == tokens * token);
          appended += work.to_drive.value;
          continue;
        }
        rows += work.sequences.size();
        to_drive += work.to_drive.value;
        from_drive += work.from_drive.value;
        for (const SequenceWork& s : work.sequences) kv_of_drive[op.resource.index] += s.tokens * token;
      }
      const std::uint64_t made = std::uint64_t{6} * 5 * in.model.layers;  // new tokens of the decode steps
      CHECK(appended == token * in.model.layers * sum_of(in.workload.prompts()));
      CHECK(to_drive == rows * q + made * token);
      CHECK(from_drive == rows * in.model.partial_bytes(all).value);
      std::uint64_t spread = 0;
      for (const auto& [drive, bytes] : kv_of_drive) spread += bytes;
      CHECK(spread == made * token);
      // q crosses the GPU's link once, however many drives there are.
      CHECK(down == (through_host ? appended + made * (q + token) : 0));
      CHECK(up == (through_host ? from_drive : 0));
    }
}

TEST_CASE("what the plan places is dropped again: only weights and the caches of the drives remain") {
  for (const bool through_host : {false, true}) {
    PlannerInputs in = ragged_inputs(3);
    in.through_host = through_host;
    const auto planner = by_tokens(in);
    TensorLedger ledger;
    for (const PlacedTensor& tensor : planner->resident()) ledger.place(tensor);
    for (const Operation& op : all_operations(*planner)) {
      ledger.begin(op);
      ledger.end(op);
    }
    CHECK(ledger.footprint(Place::gpu()).now == in.model.weight_bytes());
    CHECK(ledger.footprint(Place::host()).now == Bytes{});
    Bytes kept;
    for (const std::uint32_t d : {0U, 1U, 2U}) kept += ledger.footprint(Place::drive_kv(DriveIndex{d})).now;
    CHECK(kept == in.model.kv_bytes_per_token() * in.workload.longest_contexts());
  }
}

TEST_CASE("a decode layer of divided tokens: all drives after q, the merge after all drives") {
  PlannerInputs in = small_inputs(2, {9, 12}, 4, 1);
  in.drives = 3;
  const std::vector<Operation> ops = all_operations(*by_tokens(in));
  std::size_t merges = 0;
  for (const Operation& op : ops) {
    if (op.kind == OpKind::finish_layer && op.tag.phase == Phase::decode) {
      REQUIRE(op.deps.size() == 1);
      const Operation& merge = ops.at(op.deps.front().value);
      REQUIRE(merge.kind == OpKind::merge_attention);
      CHECK(std::get<ComputeWork>(merge.work) == in.model.merge_attention(2, 3));
      std::set<std::uint32_t> drives;
      for (const OperationId dep : merge.deps) {
        CHECK(ops.at(dep.value).kind == OpKind::attend);
        CHECK(ops.at(dep.value).tag.step == op.tag.step);
        drives.insert(ops.at(dep.value).resource.index);
      }
      CHECK(drives == std::set<std::uint32_t>{0, 1, 2});
      ++merges;
    }
    if (op.kind == OpKind::attend && op.tag.step == 0) {
      // The drive's own K and V of the prefill have to be there.
      const bool waits = std::ranges::any_of(op.deps, [&](OperationId dep) {
        return ops.at(dep.value).kind == OpKind::append_kv && ops.at(dep.value).resource == op.resource &&
               ops.at(dep.value).tag.layer == op.tag.layer;
      });
      CHECK(waits);
    }
  }
  CHECK(merges == 3 * 2);
}

TEST_CASE("one drive merges nothing, and SparF divides no tokens") {
  const PlannerInputs in = small_inputs(2, {9, 12}, 4, 1);
  const std::vector<Operation> tokens = all_operations(*by_tokens(in));
  const std::vector<Operation> heads = all_operations(*plan_of("instinfer-dense", in));
  REQUIRE(tokens.size() == heads.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    CHECK(tokens[i].kind == heads[i].kind);
    if (const auto* work = std::get_if<DriveWork>(&tokens[i].work)) CHECK_FALSE(work->partial);
  }
  InstinferSparf sparf;
  sparf.shard = ShardBy::token;
  CHECK_THROWS_WITH(sparf.plan(in), Catch::Contains("SparF") && Catch::Contains("shard: head"));
}

TEST_CASE("a span of steps is the same stretch of the whole run, with divided tokens, too") {
  PlannerInputs in = small_inputs(1, {5, 70}, 12, 1);
  in.drives = 3;
  const auto attends = [](const std::vector<Operation>& ops) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> contexts;
    for (const Operation& op : ops)
      if (op.kind == OpKind::attend)
        for (const SequenceWork& s : std::get<DriveWork>(op.work).sequences)
          contexts[{op.tag.step, op.resource.index}].push_back(s.context());
    return contexts;
  };
  const auto whole = attends(all_operations(*by_tokens(in)));
  in.span = {.prefill = false, .first_step = 7, .decode_steps = 3};
  const auto part = attends(all_operations(*by_tokens(in)));
  CHECK(part.size() == 9);
  for (const auto& [at, contexts] : part) CHECK(whole.at(at) == contexts);
}

TEST_CASE("work counts of divided tokens are those of the drives' own groups") {
  const BatchLengths workload{{37, 64, 5}, 40};
  KvGrouping grouping{.page_tokens = 4};
  grouping.division = KvDivision(ShardBy::token, 2, 3);
  const std::vector<StepFeatures> steps = step_features(workload, grouping, {});
  double flushes = 0, expected = 0;
  for (std::uint32_t s = 0; s < steps.size(); ++s) {
    double flushed = 0, tail = 0;
    for (const std::uint32_t prompt : workload.prompts())
      for (std::uint32_t d = 0; d < 3; ++d) {
        const std::uint32_t tokens = grouping.division.tokens(DriveIndex{d}, prompt, s + 1);
        flushed += tokens - tokens % 4;
        tail += tokens % 4;
      }
    CHECK(steps[s].flushed == Approx(flushed / 3));
    CHECK(steps[s].tail == Approx(tail / 3));
    flushes += steps[s].token_flushes * 3;
  }
  for (const std::uint32_t prompt : workload.prompts())
    for (std::uint32_t d = 0; d < 3; ++d) {
      const auto groups = [&](std::uint32_t step) { return grouping.division.tokens(DriveIndex{d}, prompt, step) / 4; };
      expected += groups(workload.decode_steps()) - groups(0);
    }
  CHECK(flushes == Approx(expected));
}

}  // namespace test_token_shards
