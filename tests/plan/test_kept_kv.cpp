// K and V with few bits: bytes of every path against closed forms, the passes that convert them, FlexGen's costs.
#include <catch2/catch.hpp>

#include <array>
#include <map>

#include "base/error.h"
#include "host_runtime/core/plan/kept_kv.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "host_runtime/core/systems/host_kv/planner.h"
#include "host_runtime/core/systems/kvpr/planner.h"
#include "tests/support/planner_support.h"

namespace test_kept_kv {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kLayers = 3;
const std::vector<std::uint32_t> kPrompts = {30, 17, 44, 8};
const RowQuantisation kFour{.bits = 4, .group = 4};

PlannerInputs inputs(std::uint32_t mini_batches = 2) { return small_inputs(kLayers, kPrompts, 5, mini_batches); }

/// K and V of a token and head of small_model(), by hand: 8 elements each.
std::uint64_t head_bytes(const RowQuantisation& kv) {
  return 2 * (8 * kv.bits / 8 + (kv.quantised() ? 8 / kv.group * 2 : 0));
}

std::uint64_t prompts() { return 30 + 17 + 44 + 8; }

struct Moved {
  std::uint64_t file_read = 0, file_written = 0, to_gpu = 0, from_gpu = 0;
};

/// Bytes of K and V by phase and step; the prefill is step -1.
std::map<int, Moved> moved(const std::vector<Operation>& operations) {
  std::map<int, Moved> steps;
  for (const Operation& op : operations) {
    Moved& of = steps[op.tag.phase == Phase::prefill ? -1 : static_cast<int>(op.tag.step)];
    if (const auto* file = std::get_if<FileWork>(&op.work))
      for (const FileRange& range : file->ranges)
        (op.kind == OpKind::read_file ? of.file_read : of.file_written) += range.size.value;
    if (const auto* link = std::get_if<LinkWork>(&op.work); link != nullptr && link->payload == LinkPayload::kv)
      (op.resource.kind == ResourceKind::host_to_gpu ? of.to_gpu : of.from_gpu) += link->bytes.value;
  }
  return steps;
}

/// Runs with a ledger, which checks places and sizes of all tensors. Returns the peak of a class at a place.
Bytes peak(Planner& planner, Place place, TensorClass what) {
  FunctionBackend backend([](const Operation&) { return SimTime{1000}; });
  Router router;
  for (std::size_t kind = 0; kind < kResourceKinds; ++kind) router.add(static_cast<ResourceKind>(kind), backend);
  Bytes most;
  Executor executor(planner, router, {});
  executor.start({});
  while (!executor.finished()) {
    executor.advance(executor.next_event());
    most = std::max(most, router.tensors().footprint(place).of_class[static_cast<std::size_t>(what)]);
  }
  return most;
}

}  // namespace

TEST_CASE("every path moves K and V in the bytes of their format", "[kept_kv]") {
  for (const RowQuantisation kv :
       {RowQuantisation{}, RowQuantisation{.bits = 8, .group = 8}, kFour, RowQuantisation{.bits = 4, .group = 2}}) {
    CAPTURE(kv.bits, kv.group);
    const std::uint64_t head = head_bytes(kv) * kLayers;
    // 4 heads: one on the GPU, one on the host, two in files.
    const TieredKv tiers{.shards = tier_heads(4, Ratio::of(1, 4), Ratio::of(1, 4)), .format = kv};
    TieredKvPlanner planner(inputs(), tiers);
    Bytes files;
    for (const PlannedFile& file : planner.files()) files += file.size;
    CHECK(files.value == 2 * head * (prompts() + 4 * 5));
    const auto steps = moved(all_operations(planner));
    CHECK(steps.at(-1).from_gpu == 3 * head * prompts());
    CHECK(steps.at(-1).file_written == 2 * head * prompts());
    for (std::uint32_t step = 0; step < 4; ++step) {
      const Moved& of = steps.at(static_cast<int>(step));
      const std::uint64_t cached = prompts() + 4 * step;
      CHECK(of.file_read == 2 * head * cached);
      CHECK(of.to_gpu == 3 * head * cached);
      CHECK(of.from_gpu == 3 * head * 4);
      CHECK(of.file_written == 2 * head * 4);
    }
    HostAttentionPlanner at_host(inputs(), 2, {}, kv);
    const auto host_steps = moved(all_operations(at_host));
    CHECK(host_steps.at(-1).from_gpu == 4 * head * prompts());
    // q in fp16, and k and v.
    CHECK(host_steps.at(0).from_gpu == (4 * head + 8 * 8 * 2 * kLayers) * 4);
  }
}

TEST_CASE("the GPU quantises new K and V once, and whoever attends dequantises the cache", "[kept_kv]") {
  const std::uint64_t fp16 = head_bytes({}) * 4, few = head_bytes(kFour) * 4;  // bytes of a token and layer
  const auto check = [&](Planner& planner, ResourceKind attends) {
    std::map<int, std::uint64_t> quantised;
    for (const Operation& op : all_operations(planner)) {
      const auto* const work = std::get_if<ComputeWork>(&op.work);
      if (work == nullptr) continue;
      if (op.kind == OpKind::append_kv && op.resource.kind == ResourceKind::gpu && work->launches > 0) {
        CHECK(work->op == OperatorClass::elementwise);
        quantised[op.tag.phase == Phase::prefill ? -1 : static_cast<int>(op.tag.step)] += work->activations.value;
      }
      if (op.kind != OpKind::attention || op.tag.phase == Phase::prefill) continue;
      CHECK(op.resource.kind == attends);
      std::uint64_t context = 0;
      for (const StepSequence& s : *op.tag.sequences) context += s.context();
      const ComputeWork plain = inputs().model.decode_attention(op.tag.sequences->size(), context);
      CHECK(work->flops == plain.flops);
      CHECK(work->launches == plain.launches + 1);
      CHECK(work->activations.value == plain.activations.value + (fp16 + few) * context);
    }
    REQUIRE(quantised.size() == 5);
    CHECK(quantised.at(-1) == (fp16 + few) * prompts() * kLayers);
    for (int step = 0; step < 4; ++step) CHECK(quantised.at(step) == (fp16 + few) * 4 * kLayers);
  };
  TieredKvPlanner at_gpu(inputs(), {.shards = tier_heads(4, {0, 1}, {1, 1}), .format = kFour});
  check(at_gpu, ResourceKind::gpu);
  HostAttentionPlanner at_host(inputs(), 2, {}, kFour);
  check(at_host, ResourceKind::host);
  // 16 bits: the plan has no such operation.
  TieredKvPlanner plain(inputs(), {.shards = tier_heads(4, {0, 1}, {1, 1})});
  for (const Operation& op : all_operations(plain))
    if (op.kind == OpKind::append_kv) CHECK(std::get<ComputeWork>(op.work).launches == 0);
}

TEST_CASE("the cache in memory has the bytes of its format, and one mini-batch's fp16 copy lies beside it",
          "[kept_kv]") {
  const std::uint64_t last = prompts() + 4 * 4;
  TieredKvPlanner planner(inputs(1), {.shards = tier_heads(4, {0, 1}, {1, 1}), .format = kFour});
  CHECK(peak(planner, Place::host(), TensorClass::kv_cache).value == head_bytes(kFour) * 4 * kLayers * last);
  TieredKvPlanner again(inputs(1), {.shards = tier_heads(4, {0, 1}, {1, 1}), .format = kFour});
  CHECK(peak(again, Place::gpu(), TensorClass::workspace).value == head_bytes({}) * 4 * last);
  TieredKvPlanner on_gpu(inputs(1), {.shards = tier_heads(4, {1, 1}, {0, 1}), .format = kFour});
  CHECK(peak(on_gpu, Place::gpu(), TensorClass::kv_cache).value == head_bytes(kFour) * 4 * kLayers * last);
  HostAttentionPlanner at_host(inputs(1), 2, {}, kFour);
  CHECK(peak(at_host, Place::host(), TensorClass::workspace).value == head_bytes({}) * 4 * last);
}

TEST_CASE("KVPR weighs K and V of few bits against activations of 16", "[kept_kv]") {
  PlannerInputs in = inputs(1);
  in.model.kv_heads = in.model.heads;
  const SplitRates rates{.link = Bandwidth{1'000'000'000}, .gemm = {200'000'000'000}};
  const auto recomputed = [&](const RowQuantisation& kv, Place at) {
    KvprPlanner planner(in, {.activations = at, .rates = rates, .format = kv}, {});
    std::uint64_t again = 0, copied = 0, attended = 0;
    for (const Operation& op : all_operations(planner)) {
      if (op.tag.phase == Phase::prefill) continue;
      if (op.kind == OpKind::recompute_kv)  // recomputed K and V have 16 bits
        again += op.tensors.writes.at(0).bytes.value / (head_bytes({}) * 8);
      if (const auto* link = std::get_if<LinkWork>(&op.work);
          link != nullptr && link->payload == LinkPayload::kv && op.resource.kind == ResourceKind::host_to_gpu)
        copied += link->bytes.value / (head_bytes(kv) * 8);
      if (op.kind == OpKind::attention)
        for (const StepSequence& s : *op.tag.sequences) attended += s.first_token;
    }
    CHECK(again + copied == attended);
    return again;
  };
  const RowQuantisation four{.bits = 4, .group = 8};
  CHECK(recomputed({}, Place::host()) > 0);
  // K and V of a token have 2 * 8 * (4 + 2) = 96 bytes, its activations 128.
  CHECK(split_costs(in.model, Place::host(), four).kv.value == 96);
  CHECK(split_costs(in.model, Place::host(), four).activations.value == 128);
  CHECK(recomputed(four, Place::host()) == 0);
  const std::uint64_t of_few = recomputed(four, Place::gpu());
  CHECK(of_few > 0);
  CHECK(of_few < recomputed({}, Place::gpu()));
}

TEST_CASE("groups that do not divide a head are an error", "[kept_kv]") {
  for (const std::uint32_t group : {0U, 3U, 16U}) {
    const TieredKv tiers{.shards = tier_heads(4, {0, 1}, {1, 1}), .format = {.bits = 4, .group = group}};
    CHECK_THROWS_WITH(TieredKvPlanner(inputs(), tiers), Catch::Contains("do not divide heads of 8 elements"));
  }
  CHECK_THROWS_AS(
      TieredKvPlanner(inputs(), {.shards = tier_heads(4, {0, 1}, {0, 1}), .format = kFour, .rewritten = true}),
      InternalError);
}

}  // namespace test_kept_kv
