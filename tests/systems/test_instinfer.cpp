// InstInfer judged by the operations it emits.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "host_runtime/core/systems/instinfer/instinfer.h"
#include "tests/support/planner_support.h"
#include "tests/support/presets.h"

namespace test_instinfer {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

using Key = std::tuple<OpKind, Phase, std::uint32_t, std::int64_t, std::uint32_t, std::uint32_t>;

Key key(OpKind kind, Phase phase, std::uint32_t step, std::int64_t layer, std::uint32_t mb, std::uint32_t drive = 0) {
  return {kind, phase, step, layer, mb, drive};
}

/// Operations by what they are, so that dependencies can be stated by meaning.
struct Plan {
  std::vector<Operation> ops;
  std::map<Key, OperationId> by_key;

  explicit Plan(const PlannerInputs& in, std::string_view system = "instinfer-dense") {
    ops = all_operations(*plan_of(system, in));
    for (const Operation& op : ops) {
      const std::int64_t layer = op.tag.layer ? std::int64_t{op.tag.layer->value} : -1;
      const bool added =
          by_key
              .emplace(key(op.kind, op.tag.phase, op.tag.step, layer, op.tag.mini_batch.value, op.resource.index),
                       op.id)
              .second;
      REQUIRE(added);
    }
  }
  const Operation& at(const Key& k) const { return ops.at(by_key.at(k).value); }
  std::set<OperationId> deps(const Key& k) const {
    const Operation& op = at(k);
    return {op.deps.begin(), op.deps.end()};
  }
  std::set<OperationId> ids(std::initializer_list<Key> keys) const {
    std::set<OperationId> result;
    for (const Key& k : keys) result.insert(by_key.at(k));
    return result;
  }
  const DriveWork& drive(const Key& k) const { return std::get<DriveWork>(at(k).work); }
};

constexpr auto P = Phase::prefill;
constexpr auto D = Phase::decode;

}  // namespace

TEST_CASE("K and V of layer i travel while layer i+1 computes: dependencies, not barriers") {
  const Plan plan(small_inputs(6, {5, 7, 9}, 1, 2));
  for (std::uint32_t mb = 0; mb < 2; ++mb)
    for (std::uint32_t layer = 0; layer < 6; ++layer) {
      // What travels needs its own projections and nothing else: not the layer's attention, not earlier transfers.
      CHECK(plan.deps(key(OpKind::append_kv, P, 0, layer, mb)) ==
            plan.ids({key(OpKind::attention_inputs, P, 0, layer, mb)}));
      CHECK(plan.deps(key(OpKind::attention, P, 0, layer, mb)) ==
            plan.ids({key(OpKind::attention_inputs, P, 0, layer, mb)}));
      CHECK(plan.deps(key(OpKind::finish_layer, P, 0, layer, mb)) ==
            plan.ids({key(OpKind::attention, P, 0, layer, mb)}));
      // The next layer does not wait for it; the one after the buffers does.
      const Key inputs = key(OpKind::attention_inputs, P, 0, layer, mb);
      if (layer == 0)
        CHECK(plan.deps(inputs) == plan.ids({key(OpKind::embed, P, 0, -1, mb)}));
      else if (layer == 1)
        CHECK(plan.deps(inputs) == plan.ids({key(OpKind::finish_layer, P, 0, 0, mb)}));
      else
        CHECK(plan.deps(inputs) ==
              plan.ids({key(OpKind::finish_layer, P, 0, layer - 1, mb), key(OpKind::append_kv, P, 0, layer - 2, mb)}));
    }
}

TEST_CASE("a decode layer: q, k, v to every drive, attention there, output back") {
  PlannerInputs in = small_inputs(3, {5, 7, 9, 11}, 4, 2);
  in.drives = 3;
  const Plan plan(in);
  for (std::uint32_t step = 0; step < 3; ++step)
    for (std::uint32_t mb = 0; mb < 2; ++mb) {
      CHECK(plan.deps(key(OpKind::embed, D, step, -1, mb)) ==
            plan.ids({step == 0 ? key(OpKind::sample, P, 0, -1, mb) : key(OpKind::sample, D, step - 1, -1, mb)}));
      for (std::uint32_t layer = 0; layer < 3; ++layer) {
        CHECK(plan.deps(key(OpKind::attention_inputs, D, step, layer, mb)) ==
              plan.ids({layer == 0 ? key(OpKind::embed, D, step, -1, mb)
                                   : key(OpKind::finish_layer, D, step, layer - 1, mb)}));
        for (std::uint32_t drive = 0; drive < 3; ++drive) {
          std::set<OperationId> expected = plan.ids({key(OpKind::attention_inputs, D, step, layer, mb)});
          if (step == 0) expected.insert(plan.by_key.at(key(OpKind::append_kv, P, 0, layer, mb, drive)));
          CHECK(plan.deps(key(OpKind::attend, D, step, layer, mb, drive)) == expected);
        }
        CHECK(plan.deps(key(OpKind::finish_layer, D, step, layer, mb)) ==
              plan.ids({key(OpKind::attend, D, step, layer, mb, 0), key(OpKind::attend, D, step, layer, mb, 1),
                        key(OpKind::attend, D, step, layer, mb, 2)}));
      }
      CHECK(plan.deps(key(OpKind::sample, D, step, -1, mb)) == plan.ids({key(OpKind::finish_layer, D, step, 2, mb)}));
    }
}

TEST_CASE("mini-batches share no dependency") {
  const Plan plan(small_inputs(4, {3, 3, 3, 3, 3, 3, 3}, 5, 3));
  for (const Operation& op : plan.ops)
    for (const OperationId dep : op.deps) CHECK(plan.ops[dep.value].tag.mini_batch == op.tag.mini_batch);
}

TEST_CASE("every sequence and head is attended exactly once a step and layer, whatever the cut") {
  for (const std::uint32_t drives : {1U, 2U, 3U, 4U})
    for (const std::uint32_t parts : {1U, 2U, 5U}) {
      PlannerInputs in = small_inputs(2, {3, 16, 1, 31, 8}, 3, parts);
      in.drives = drives;
      const Plan plan(in);
      std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, int> attended;
      std::uint64_t appended = 0;
      for (const Operation& op : plan.ops) {
        if (op.resource.kind != ResourceKind::drive_kv) continue;
        const auto& work = std::get<DriveWork>(op.work);
        if (op.kind == OpKind::append_kv) appended += work.to_drive.value;
        if (op.kind != OpKind::attend) continue;
        for (const SequenceWork& s : work.sequences) {
          CHECK(s.tokens == 1);
          CHECK(s.first_token.value == in.workload.prompt_of(s.sequence) + op.tag.step);
          CHECK(s.context() == s.first_token.value + 1);
          CHECK(s.top_k == s.context());
          for (std::uint32_t h = 0; h < work.heads.count; ++h)
            ++attended[{op.tag.step, op.tag.layer->value, s.sequence.value, work.heads.first.value + h}];
        }
      }
      CHECK(attended.size() == 2 * 2 * 5 * 4);
      CHECK(std::all_of(attended.begin(), attended.end(), [](const auto& a) { return a.second == 1; }));
      CHECK(appended == in.model.kv_bytes_per_token().value * (3 + 16 + 1 + 31 + 8));
    }
}

TEST_CASE("heads spread over drives with shares that differ by at most one") {
  for (std::uint32_t heads = 1; heads <= 40; ++heads)
    for (std::uint32_t drives = 1; drives <= heads; ++drives) {
      const auto shards = shard_heads(heads, drives);
      REQUIRE(shards.size() == drives);
      std::uint32_t next = 0, least = heads, most = 0;
      for (const HeadRange& r : shards) {
        CHECK(r.first.value == next);
        next += r.count;
        least = std::min(least, r.count);
        most = std::max(most, r.count);
      }
      CHECK(next == heads);
      CHECK(most - least <= 1);
    }
  CHECK_THROWS_WITH(shard_heads(4, 5), Catch::Contains("5 drives for 4 KV heads"));
  CHECK_THROWS_AS(shard_heads(4, 0), UserError);
}

TEST_CASE("a decode step moves q, k, v in and the output back, S/2 less than the cache") {
  PlannerInputs in = small_inputs(1, {1023}, 2, 1);
  in.model = csdsim::test::model_preset("opt-13b");
  in.model.layers = 1;
  const Plan plan(in);
  const DriveWork& work = plan.drive(key(OpKind::attend, D, 0, 0, 0));
  CHECK(work.to_drive.value == 3 * 5120 * 2);
  CHECK(work.from_drive.value == 5120 * 2);
  // InstInfer IV-D: s/2 times less PCIe data than moving K and V of s tokens.
  const std::uint64_t cache = in.model.kv_bytes_per_token().value * 1024;
  CHECK(static_cast<double>(cache) / static_cast<double>((work.to_drive + work.from_drive).value) == 1024 / 2.0);
}

TEST_CASE("SparF carries r, and k and l by each sequence's own context") {
  PlannerInputs in = small_inputs(1, {63, 799}, 3, 1);
  const Plan plan(in, "instinfer-sparf");
  const DriveWork& work = plan.drive(key(OpKind::attend, D, 1, 0, 0));
  CHECK(work.method == Method::sparf);
  CHECK(work.components == 1);  // one of 8
  CHECK(work.sequences[0].top_k == 8);
  CHECK(work.sequences[1].context() == 801);
  CHECK(work.sequences[1].top_k == 100);
  CHECK(work.sequences[1].local == 25);
  CHECK(plan.drive(key(OpKind::append_kv, P, 0, 0, 0)).to_drive.value ==
        in.model.kv_bytes_per_token().value * (63 + 799));
}

TEST_CASE("a span of steps is the same stretch of the whole run") {
  PlannerInputs in = small_inputs(2, {5, 70}, 12, 2);
  const Plan whole(in);
  in.span = {.prefill = false, .first_step = 7, .decode_steps = 3};
  const Plan part(in);
  CHECK(part.ops.front().tag.step == 7);
  CHECK(part.ops.back().tag.step == 9);
  CHECK(part.deps(key(OpKind::embed, D, 7, -1, 1)).empty());
  const Key k = key(OpKind::attend, D, 8, 1, 1);
  CHECK(part.drive(k).sequences[0].first_token == whole.drive(k).sequences[0].first_token);
  CHECK(part.drive(k).sequences[0].first_token.value == 78);
  in.span = {.prefill = false, .first_step = 9, .decode_steps = 3};
  CHECK_THROWS_AS(Plan(in), InternalError);
}

TEST_CASE("systems are found by name and mistakes are named") {
  const PlannerInputs in = small_inputs(2, {4, 4}, 2, 1);
  CHECK_THROWS_WITH(plan_of("instinfer", in), Catch::Contains("instinfer-dense, instinfer-sparf"));
  CHECK(drive_system_of(builtin_systems(), "sparf") == "instinfer-sparf");
  CHECK_THROWS_WITH(drive_system_of(builtin_systems(), "h2o"), Catch::Contains("supported: dense, sparf"));
  PlannerInputs bad = in;
  bad.mini_batches = 3;
  CHECK_THROWS_WITH(plan_of("instinfer-dense", bad), Catch::Contains("1 to 2"));
  InstinferDense unbuffered;
  unbuffered.kv_buffers = 0;
  CHECK_THROWS_WITH(unbuffered.plan(in), Catch::Contains("kv_buffers"));
  bad = in;
  bad.drives = 5;
  CHECK_THROWS_AS(plan_of("instinfer-dense", bad), UserError);
  bad = in;
  bad.workload.requests[1].prompt = 0;
  CHECK_THROWS_WITH(plan_of("instinfer-dense", bad), Catch::Contains("prompt 1"));
  bad = in;
  bad.workload.output_tokens = 0;
  CHECK_THROWS_AS(plan_of("instinfer-dense", bad), UserError);
}

TEST_CASE("an operation may only depend on what was emitted before it") {
  OperationSink sink;
  const OperationId a = sink.add(OpKind::embed, Resource::gpu(), {}, ComputeWork{}, {});
  CHECK_THROWS_AS(sink.add(OpKind::sample, Resource::gpu(), {}, ComputeWork{}, {OperationId{1}}), InternalError);
  CHECK(sink.add(OpKind::sample, Resource::gpu(), {}, ComputeWork{}, {a}) == OperationId{1});
}

TEST_CASE("operations have readable names") {
  CHECK(operation_name(OpKind::attend, {Phase::decode, 17, LayerId{3}, MiniBatch{1}}) ==
        "decode 17 layer 3 mini-batch 1 attend");
  CHECK(operation_name(OpKind::embed, {}) == "prefill mini-batch 0 embed");
  CHECK(resource_name(Resource::drive(DriveIndex{2})) == "drive 2");
}

TEST_CASE("through host memory, everything that GPU and drive exchange is copied over the GPU's link too") {
  PlannerInputs in = small_inputs(2, {5, 7}, 1, 2);
  const std::vector<Operation> direct = all_operations(*plan_of("instinfer-dense", in));
  in.through_host = true;
  const std::vector<Operation> ops = all_operations(*plan_of("instinfer-dense", in));
  std::size_t copies = 0;
  for (const Operation& op : ops) {
    if (op.kind == OpKind::transfer) ++copies;
    if (op.kind == OpKind::append_kv || op.kind == OpKind::attend) {
      const Operation& in_host = ops.at(op.deps.front().value);
      REQUIRE(in_host.kind == OpKind::transfer);
      CHECK(in_host.resource.kind == ResourceKind::gpu_to_host);
      CHECK(std::get<LinkWork>(in_host.work).bytes == std::get<DriveWork>(op.work).to_drive);
    }
    if (op.kind == OpKind::finish_layer && op.tag.phase == D) {
      REQUIRE(op.deps.size() == 1);
      const Operation& back = ops.at(op.deps.front().value);
      REQUIRE(back.kind == OpKind::transfer);
      CHECK(back.resource.kind == ResourceKind::host_to_gpu);
      const Operation& attend = ops.at(back.deps.front().value);
      CHECK(std::get<LinkWork>(back.work).bytes == std::get<DriveWork>(attend.work).from_drive);
    }
  }
  CHECK(copies > 0);
  CHECK(ops.size() == direct.size() + copies);
}

}  // namespace test_instinfer
