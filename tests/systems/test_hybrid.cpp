// Tokens divided among recomputation, GPU memory, host memory and drives: the division, the plan's bytes and its
// dependencies.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/plan/tensor_ledger.h"
#include "host_runtime/core/sampling/step_features.h"
#include "host_runtime/core/systems/hilos/hilos.h"
#include "host_runtime/core/systems/hybrid/hybrid.h"
#include "tests/support/planner_support.h"

namespace test_hybrid {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr TokenPart kParts[] = {TokenPart::recomputed, TokenPart::kept, TokenPart::copied, TokenPart::drives};

TokenShares tenths(std::uint64_t recomputed, std::uint64_t kept, std::uint64_t copied, std::uint32_t group) {
  const auto of = [](std::uint64_t n) { return Ratio::of(n, 10); };
  return {.share = {of(recomputed), of(kept), of(copied), of(10 - recomputed - kept - copied)}, .group = group};
}

/// Random tenths; often a part has none or all of the tokens.
TokenShares random_shares(Rng& rng, std::uint32_t group) {
  std::array<std::uint64_t, 4> parts{};
  for (std::uint64_t left = 10; left > 0;) {
    const std::uint64_t some = 1 + rng.below(left);
    parts[rng.below(4)] += some;
    left -= some;
  }
  return tenths(parts[0], parts[1], parts[2], group);
}

PlannerInputs inputs(std::uint32_t drives, std::uint32_t mini_batches = 1) {
  PlannerInputs in = small_inputs(2, {30, 7, 1, 64}, 14, mini_batches);
  in.drives = drives;
  return in;
}

/// Checks every access to a tensor while operations take random times.
class LedgerBackend final : public OperationBackend {
 public:
  LedgerBackend(const Planner& planner, std::uint64_t seed) : rng_(seed, "durations") {
    for (const PlacedTensor& tensor : planner.resident()) ledger.place(tensor);
  }
  std::optional<SimTime> start(const Operation& op, SimTime) override {
    ledger.begin(op);
    return SimTime{static_cast<std::int64_t>(rng_.below(50))};
  }
  void end(const Operation& op) override { ledger.end(op); }

  TensorLedger ledger;

 private:
  Rng rng_;
};

/// Tokens of all sequences, their K and V or activations, that are in a part before a decode step, or after the run.
std::uint64_t left_in(const PlannerInputs& in, const KvDivision& division, TokenPart part, int step = -1) {
  std::uint64_t tokens = 0;
  for (const std::uint32_t prompt : in.workload.prompts())
    tokens += division.tokens(part, prompt, step < 0 ? in.workload.decode_steps() : static_cast<std::uint32_t>(step));
  return tokens;
}

}  // namespace

TEST_CASE("every token of a sequence is in one part, in one drive or among the newest ones", "[hybrid]") {
  Rng rng(7, "division of tokens");
  for (int trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    const auto drives = static_cast<std::uint32_t>(1 + rng.below(5));
    const auto group = static_cast<std::uint32_t>(1 + rng.below(20));
    const TokenShares shares = random_shares(rng, group);
    const KvDivision division(shares, 4, drives);
    const auto prompt = static_cast<std::uint32_t>(1 + rng.below(200));
    REQUIRE(division.by_tokens());
    REQUIRE(division.heads(DriveIndex{0}) == HeadRange{KvHead{0}, 4});
    std::uint32_t next = 0;
    for (const TokenPart part : kParts) {
      const Share share = division.prompt(part, prompt);
      REQUIRE(share.first == next);
      REQUIRE(std::abs(share.count - shares[part].value() * prompt) <= 1);
      next += share.count;
    }
    REQUIRE(next == prompt);
    next = division.prompt(TokenPart::drives, prompt).first;
    for (std::uint32_t d = 0; d < drives; ++d) {
      REQUIRE(division.prompt(DriveIndex{d}, prompt).first == next);
      next += division.prompt(DriveIndex{d}, prompt).count;
    }
    REQUIRE(next == prompt);

    std::map<TokenPart, std::uint32_t> held;
    std::vector<std::uint32_t> in_drive;
    for (const TokenPart part : kParts) held[part] = division.prompt(part, prompt).count;
    for (std::uint32_t d = 0; d < drives; ++d) in_drive.push_back(division.prompt(DriveIndex{d}, prompt).count);
    for (std::uint32_t step = 0; step < 30 * group; ++step) {
      std::uint32_t all = division.newest(step);
      for (const TokenPart part : kParts) {
        REQUIRE(division.tokens(part, prompt, step) == held[part]);
        all += held[part];
        REQUIRE((shares[part] > Ratio{0, 1} || held[part] == 0));
      }
      REQUIRE(all == prompt + step);
      std::uint32_t of_drives = 0, appending = 0;
      for (std::uint32_t d = 0; d < drives; ++d) {
        REQUIRE(division.tokens(DriveIndex{d}, prompt, step) == in_drive[d]);
        REQUIRE(in_drive[d] <= division.most_tokens(prompt + step));
        of_drives += in_drive[d];
        if (!division.appends(DriveIndex{d}, step)) continue;
        ++appending;
        in_drive[d] += group;
      }
      REQUIRE(of_drives == held[TokenPart::drives]);
      if (!division.writes_back(step)) continue;
      held[division.target(step).part] += group;
      REQUIRE(appending == (division.target(step).part == TokenPart::drives ? 1 : 0));
    }
    // A part lacks or exceeds its share of the new tokens by less than a group or two.
    for (const TokenPart part : kParts)
      REQUIRE(std::abs(held[part] - division.prompt(part, prompt).count - shares[part].value() * 30 * group) <=
              2.0 * group);
  }
}

TEST_CASE("shares and groups that are none", "[hybrid]") {
  TokenShares shares = tenths(1, 2, 3, 4);
  shares[TokenPart::drives] = Ratio{1, 2};
  CHECK_THROWS_AS(KvDivision(shares, 4, 1), UserError);
  CHECK_THROWS_AS(KvDivision(tenths(1, 2, 3, 0), 4, 1), UserError);
  CHECK_THROWS_AS(KvDivision(tenths(1, 2, 3, 1), 4, 0), UserError);
  CHECK_THROWS_AS(HybridPlanner(inputs(1), {.shares = tenths(1, 1, 1, 1), .kv_buffers = 0}), UserError);
}

TEST_CASE("whatever operations take, every tensor is where it is read, and parts hold their tokens at the end",
          "[hybrid]") {
  Rng rng(11, "hybrid plans");
  for (int trial = 0; trial < 150; ++trial) {
    CAPTURE(trial);
    PlannerInputs in =
        inputs(static_cast<std::uint32_t>(1 + rng.below(3)), static_cast<std::uint32_t>(1 + rng.below(2)));
    in.through_host = rng.below(2) == 0;
    const HybridPlan plan{.shares = random_shares(rng, static_cast<std::uint32_t>(1 + rng.below(5))),
                          .newest = rng.below(2) == 0 ? Place::gpu() : Place::host(),
                          .activations = rng.below(2) == 0 ? Place::host() : Place::drive_blocks(),
                          .kv_buffers = static_cast<std::uint32_t>(1 + rng.below(5))};
    const KvDivision division(plan.shares, in.model.kv_heads, in.drives);
    HybridPlanner planner(in, plan);
    LedgerBackend backend(planner, static_cast<std::uint64_t>(trial));
    Executor executor(planner, backend, {.slots = drive_slots(4)});
    run(executor);
    const std::uint64_t kv = in.model.kv_bytes_per_token().value;
    const std::uint64_t x = std::uint64_t{in.model.width} * in.model.element_bytes * in.model.layers;
    const std::uint64_t waiting = division.newest(in.workload.decode_steps()) * in.workload.batch();
    const bool x_waits = division.target(in.workload.decode_steps()).part == TokenPart::recomputed;
    const bool on_gpu = plan.newest == Place::gpu();
    std::uint64_t kv_in_drives = 0, in_blocks = 0;
    for (std::uint32_t d = 0; d < in.drives; ++d) {
      kv_in_drives += backend.ledger.footprint(Place::drive_kv(DriveIndex{d})).now.value;
      in_blocks += backend.ledger.footprint(Place::drive_blocks(DriveIndex{d})).now.value;
    }
    const std::uint64_t activations = x * left_in(in, division, TokenPart::recomputed);
    const bool on_host = plan.activations == Place::host();
    CHECK(kv_in_drives == kv * left_in(in, division, TokenPart::drives));
    CHECK(in_blocks == (on_host ? 0 : activations));
    CHECK(backend.ledger.footprint(Place::host()).now.value ==
          kv * (left_in(in, division, TokenPart::copied) + (on_gpu ? 0 : waiting)) + (on_host ? activations : 0));
    CHECK(backend.ledger.footprint(Place::gpu()).now.value ==
          in.model.weight_bytes().value + kv * (left_in(in, division, TokenPart::kept) + (on_gpu ? waiting : 0)) +
              (x_waits ? x * waiting : 0));
  }
}

TEST_CASE("a span without the prefill starts with what the steps before it have left", "[hybrid]") {
  Rng rng(5, "spans");
  for (int trial = 0; trial < 60; ++trial) {
    CAPTURE(trial);
    PlannerInputs in = inputs(2);
    const std::uint32_t steps = in.workload.decode_steps(), first = static_cast<std::uint32_t>(rng.below(steps));
    in.span = {.prefill = false, .first_step = first, .decode_steps = steps - first};
    const HybridPlan plan{.shares = random_shares(rng, static_cast<std::uint32_t>(1 + rng.below(6))),
                          .newest = rng.below(2) == 0 ? Place::gpu() : Place::host(),
                          .activations = rng.below(2) == 0 ? Place::host() : Place::drive_blocks()};
    HybridPlanner planner(in, plan);
    LedgerBackend backend(planner, 3);
    for (const PlacedTensor& tensor : planner.resident())
      if (tensor.name.layer) REQUIRE(tensor.name.layer->value < in.model.layers);
    Executor executor(planner, backend, {.slots = drive_slots(4)});
    CHECK_NOTHROW(run(executor));
  }
}

TEST_CASE("bytes of a decode step: activations, copies, new tokens and partial outputs in closed form", "[hybrid]") {
  for (const Place newest : {Place::gpu(), Place::host()})
    for (const std::uint32_t group : {1U, 4U}) {
      const PlannerInputs in = inputs(2);
      const HybridPlan plan{.shares = tenths(3, 1, 2, group), .newest = newest};
      const KvDivision division(plan.shares, in.model.kv_heads, in.drives);
      HybridPlanner planner(in, plan);
      std::map<std::uint32_t, std::uint64_t> up, down, recomputed, on_gpu, to_drives, attended, outputs;
      for (const Operation& op : all_operations(planner)) {
        if (op.tag.phase == Phase::prefill) continue;
        const std::uint32_t step = op.tag.step;
        if (const auto* const link = std::get_if<LinkWork>(&op.work))
          (op.resource.kind == ResourceKind::host_to_gpu ? up : down)[step] += link->bytes.value;
        if (op.kind == OpKind::recompute_kv) recomputed[step] += std::get<ComputeWork>(op.work).flops;
        if (op.kind == OpKind::attention) on_gpu[step] += std::get<ComputeWork>(op.work).flops;
        if (const auto* const drive = std::get_if<DriveWork>(&op.work)) {
          to_drives[step] += op.kind == OpKind::append_kv ? drive->to_drive.value : 0;
          for (const SequenceWork& s : drive->sequences)
            if (op.kind == OpKind::attend) attended[step] += s.context();
          outputs[step] += drive->from_drive.value;
        }
      }
      const std::uint64_t layers = in.model.layers, batch = in.workload.batch();
      const std::uint64_t kv = in.model.kv_bytes_per_token_and_layer().value * layers;
      const std::uint64_t x = std::uint64_t{in.model.width} * in.model.element_bytes * layers;
      const auto tokens = [&](TokenPart part, std::uint32_t step) { return left_in(in, division, part, int(step)); };
      for (std::uint32_t step = 0; step < in.workload.decode_steps(); ++step) {
        CAPTURE(step, group, place_name(newest));
        const bool host = newest == Place::host(), leaves = division.writes_back(step);
        const TokenPart target = division.target(step).part;
        const std::uint64_t waiting = division.newest(step) * batch, group_tokens = leaves ? group * batch : 0;
        CHECK(up[step] == x * tokens(TokenPart::recomputed, step) + kv * tokens(TokenPart::copied, step) +
                              (host ? kv * waiting : 0) + (host && target == TokenPart::kept ? kv * group_tokens : 0));
        CHECK(down[step] == (host ? kv * batch : 0) + (!host && target == TokenPart::copied ? kv * group_tokens : 0) +
                                (target == TokenPart::recomputed ? x * group_tokens : 0));
        CHECK(recomputed[step] == in.model.recompute_kv(tokens(TokenPart::recomputed, step)).flops * layers);
        // All tokens that are in no drive, with the new one of each sequence.
        const std::uint64_t elsewhere = tokens(TokenPart::recomputed, step) + tokens(TokenPart::kept, step) +
                                        tokens(TokenPart::copied, step) + waiting + batch;
        CHECK(on_gpu[step] == in.model.decode_attention(batch, elsewhere).flops * layers);
        CHECK(to_drives[step] == (target == TokenPart::drives ? kv * group_tokens : 0));
        CHECK(attended[step] == tokens(TokenPart::drives, step) * layers);
      }
    }
}

TEST_CASE("activations in drives: each byte is written once and read in every step, over the drives' links",
          "[hybrid]") {
  Rng rng(23, "activations in drives");
  for (int trial = 0; trial < 60; ++trial) {
    CAPTURE(trial);
    PlannerInputs in =
        inputs(static_cast<std::uint32_t>(1 + rng.below(4)), static_cast<std::uint32_t>(1 + rng.below(2)));
    in.block_size = Bytes{rng.below(2) == 0 ? 512U : 4096U};
    in.through_host = rng.below(2) == 0;
    const auto group = static_cast<std::uint32_t>(1 + rng.below(4));
    const HybridPlan plan{.shares = random_shares(rng, group), .activations = Place::drive_blocks()};
    const KvDivision division(plan.shares, in.model.kv_heads, in.drives);
    HybridPlanner planner(in, plan);
    const std::uint64_t row = std::uint64_t{in.model.width} * in.model.element_bytes, block = in.block_size.value;
    std::map<std::uint32_t, std::uint64_t> read, up;                           // by step
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> written;  // the end of each extent, by its start
    std::uint64_t stored = 0;
    for (const Operation& op : all_operations(planner)) {
      if (const auto* const link = std::get_if<LinkWork>(&op.work))
        if (op.tag.phase == Phase::decode && link->payload == LinkPayload::activations &&
            op.resource.kind == ResourceKind::host_to_gpu && op.tensors.reads.at(0).what == TensorClass::layer_input)
          up[op.tag.step] += link->bytes.value;
      const auto* const blocks = std::get_if<BlockWork>(&op.work);
      if (blocks == nullptr) continue;
      const Extent extent = blocks->extents.at(0);
      if (op.kind == OpKind::write_blocks) {
        REQUIRE(written.emplace(std::pair{op.resource.index, extent.first}, extent.end()).second);
        stored += extent.blocks;
        continue;
      }
      read[op.tag.step] += op.tensors.writes.at(0).bytes.value;
      // Everything that is read has been written, and it has the bytes of its rows but for the ends of blocks.
      std::uint64_t at = extent.first, pieces = 0;
      for (; at < extent.end(); ++pieces) at = written.at({op.resource.index, at});
      REQUIRE(at == extent.end());
      const std::uint64_t bytes = op.tensors.writes.at(0).bytes.value;
      REQUIRE(extent.blocks * block >= bytes);
      REQUIRE(extent.blocks * block < bytes + pieces * block);
    }
    std::uint64_t planned = 0;
    for (const PlannedBlocks& of_drive : planner.blocks()) planned += of_drive.blocks;
    CHECK(planned == stored);
    for (const auto& [start, end] : written)
      for (const auto& [other, other_end] : written)
        if (start.first == other.first && start != other) CHECK((end <= other.second || other_end <= start.second));
    for (std::uint32_t step = 0; step < in.workload.decode_steps(); ++step) {
      std::uint64_t tokens = 0;
      for (const std::uint32_t prompt : in.workload.prompts())
        tokens += division.tokens(TokenPart::recomputed, prompt, step);
      CHECK(read[step] == row * tokens * in.model.layers);
      CHECK(up[step] == (in.through_host ? read[step] : 0));
    }
  }
}

TEST_CASE("a drive gets a group after it has attended, and attends to it in the next step", "[hybrid]") {
  const PlannerInputs in = inputs(2, 2);
  HybridPlanner planner(in, {.shares = tenths(2, 1, 1, 3)});
  std::map<OperationId, Operation> by_id;
  for (const Operation& op : all_operations(planner)) by_id.emplace(op.id, op);
  const auto waits_for = [&](const Operation& op, OpKind kind, std::uint32_t step) {
    return std::ranges::any_of(op.deps, [&](OperationId id) {
      const Operation& before = by_id.at(id);
      return before.kind == kind && before.tag.step == step && before.tag.phase == Phase::decode &&
             before.tag.layer == op.tag.layer && before.tag.mini_batch == op.tag.mini_batch &&
             before.resource == op.resource;
    });
  };
  int groups = 0;
  for (const auto& [id, op] : by_id) {
    if (op.tag.phase == Phase::prefill || op.resource.kind != ResourceKind::drive_kv) continue;
    const std::uint32_t step = op.tag.step;
    if (op.kind == OpKind::append_kv) {
      ++groups;
      CHECK(waits_for(op, OpKind::attend, step));
      for (const auto& [other, next] : by_id)
        if (next.kind == OpKind::attend && next.tag.step == step + 1 && next.resource == op.resource &&
            next.tag.layer == op.tag.layer && next.tag.mini_batch == op.tag.mini_batch)
          CHECK(waits_for(next, OpKind::append_kv, step));
    }
  }
  CHECK(groups > 4);
}

TEST_CASE("steps that write a group back are a stratum of their own", "[hybrid]") {
  const BatchLengths workload{{100, 40}, 40};
  KvGrouping grouping{.page_tokens = 16};
  grouping.division = KvDivision(tenths(2, 2, 2, 8), 4, 2);
  const std::vector<StepFeatures> steps = step_features(workload, grouping, {});
  for (std::uint32_t step = 0; step < steps.size(); ++step) {
    CHECK((steps[step].token_flushes + steps[step].window_flushes > 0) == ((step + 1) % 8 == 0));
    CHECK(steps[step].flushed + steps[step].windowed + steps[step].tail == Approx(70 + step + 1));
  }
}

TEST_CASE("given shares stay as they are, and the rest is solved", "[hybrid]") {
  Hybrid system;
  system.given = {Ratio{1, 4}, Ratio{0, 1}, std::nullopt, Ratio{1, 2}};
  const PlannerInputs in = inputs(1);
  const auto planner = system.plan(in);
  for (const Operation& op : all_operations(*planner))
    if (op.kind == OpKind::recompute_kv && op.tag.step == 0)
      CHECK(op.tensors.writes.at(0).bytes == in.model.kv_bytes_per_token_and_layer() * (8 + 2 + 0 + 16));
  const SystemNeeds needs = system.needs({.model = in.model, .workload = in.workload});
  REQUIRE(needs.shares);
  CHECK((*needs.shares)[TokenPart::recomputed] == Ratio{1, 4});
  CHECK((*needs.shares)[TokenPart::copied] == Ratio{1, 4});
  CHECK((*needs.shares)[TokenPart::drives] == Ratio{1, 2});
}

}  // namespace test_hybrid
