// FlexGen with SparQ: where rows are in files, and the bytes of each step in closed form.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "host_runtime/core/features/head_rows/head_rows.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/core/systems/flexgen_sparq/flexgen_sparq.h"
#include "tests/support/planner_support.h"

namespace test_flexgen_sparq {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kLayers = 3;
const std::vector<std::uint32_t> kPrompts = {30, 17, 44, 8};
const SparfParameters kBudget = {.ratio = {1, 4}, .r = 3, .k = {}, .local = 2};

PlannerInputs inputs(std::uint32_t mini_batches, std::uint32_t output_tokens = 13) {
  return small_inputs(kLayers, kPrompts, output_tokens, mini_batches);
}

SparqPlanner plan(const PlannerInputs& in, std::uint32_t written_tokens) {
  return {in, {.budget = kBudget, .written_tokens = written_tokens}, {}};
}

Bytes written(const Operation& op, TensorClass what) {
  Bytes sum;
  for (const SizedTensor& write : op.tensors.writes)
    if (write.name.what == what) sum += write.bytes;
  return sum;
}

using Kind = HeadRows::Kind;

}  // namespace

TEST_CASE("rows of heads do not overlap, and fill their files") {
  for (const Kind kind : {Kind::tokens, Kind::components}) {
    HeadRows rows{.kind = kind, .heads = {KvHead{0}, 3}, .head_dim = 4, .element_bytes = 2};
    rows.sequences = {{.sequence = SequenceId{0}, .tokens_before = 0, .room = 5, .first = 0, .stored = 5},
                      {.sequence = SequenceId{1}, .tokens_before = 5, .room = 7, .first = 0, .stored = 7}};
    std::vector<FileRange> ranges = written_ranges(rows);
    CHECK(ranges.size() == 2 * 3 * (kind == Kind::tokens ? 2 : 4));
    std::ranges::sort(ranges);
    std::uint64_t next = 0;
    for (const FileRange& range : ranges) {
      CHECK(range.offset.value == next);
      next += range.size.value;
    }
    CHECK(next == (5 + 7) * 3 * 4 * 2 * (kind == Kind::tokens ? 2 : 1));
  }
}

TEST_CASE("chosen rows: neighbours are one range, K before V; a head that is not sparse reads all") {
  HeadRows rows{.kind = Kind::tokens, .heads = {KvHead{0}, 1}, .head_dim = 4, .element_bytes = 2};
  rows.sequences = {{.sequence = SequenceId{0}, .room = 20, .stored = 16, .context = 18, .top_k = 5, .local = 1},
                    {.sequence = SequenceId{1}, .tokens_before = 20, .room = 6, .stored = 4, .context = 5, .top_k = 5}};
  const std::vector<std::uint32_t> chosen = {2, 3, 4, 9};
  const auto ranges = chosen_ranges(rows, [&](const auto&, auto) { return std::span<const std::uint32_t>(chosen); });
  const auto range = [](std::uint64_t row, std::uint64_t count) { return FileRange{Bytes{row * 8}, Bytes{count * 8}}; };
  CHECK(ranges == std::vector{range(2, 3), range(9, 1), range(22, 3), range(29, 1), range(40, 4), range(46, 4)});
  rows.kind = Kind::components;
  const auto components =
      chosen_ranges(rows, [&](const auto&, auto) { return std::span<const std::uint32_t>(chosen).first(2); });
  CHECK(components == std::vector{FileRange{Bytes{2 * 20 * 2}, Bytes{32}}, FileRange{Bytes{3 * 20 * 2}, Bytes{32}}});
  const std::vector<std::uint32_t> beyond = {16};
  rows.kind = Kind::tokens;
  CHECK_THROWS_AS(chosen_ranges(rows, [&](const auto&, auto) { return std::span<const std::uint32_t>(beyond); }),
                  InternalError);
}

TEST_CASE("flexgen-sparq keeps 1.5 times K and V in files, and needs() says so") {
  SparqPlanner planner = plan(inputs(2), 4);
  Bytes size;
  for (const PlannedFile& file : planner.files()) size += file.size;
  const ModelShape model = small_model(kLayers);
  const std::uint64_t tokens = std::accumulate(kPrompts.begin(), kPrompts.end(), 13 * kPrompts.size());
  CHECK(size.value == model.kv_bytes_per_token().value * tokens * 3 / 2);
  Bytes stated;
  const FlexGenSparq system;
  for (const Resident& resident : system.needs({.model = model, .workload = {kPrompts, 13}}).residents)
    if (resident.home == Place::drive_blocks()) stated += resident.bytes;
  CHECK(stated == size);
}

TEST_CASE("each step reads r components of all tokens and K and V of k, and the GPU's link carries them") {
  const std::uint32_t mini_batches = GENERATE(1U, 3U), unit = GENERATE(1U, 4U, 64U);
  const ModelShape model = small_model(kLayers);
  SparqPlanner planner = plan(inputs(mini_batches), unit);
  const SparfBudget budget(kBudget, model.head_dim);
  const std::uint64_t of_element = model.element_bytes * model.kv_heads * kLayers;
  struct Step {
    std::uint64_t read = 0, to_gpu = 0, from_gpu = 0;
  };
  std::map<std::uint32_t, Step> steps;
  for (const Operation& op : all_operations(planner)) {
    if (op.tag.phase != Phase::decode) continue;
    Step& step = steps[op.tag.step];
    if (op.kind == OpKind::read_file) step.read += written(op, TensorClass::fetched_kv).value;
    if (const auto* link = std::get_if<LinkWork>(&op.work))
      (op.resource.kind == ResourceKind::host_to_gpu ? step.to_gpu : step.from_gpu) += link->bytes.value;
  }
  REQUIRE(steps.size() == 12);
  for (const auto& [s, step] : steps) {
    std::uint64_t read = 0, to_gpu = 0, from_gpu = 0;
    for (const std::uint32_t prompt : kPrompts) {
      const std::uint32_t before = prompt + s, context = before + 1, stored = before - before % unit;
      const std::uint32_t k = budget.top_k(context), l = budget.local(context);
      REQUIRE(k < context);
      to_gpu += (std::uint64_t{budget.components()} * context + 2ULL * k * model.head_dim) * of_element;
      read += (std::uint64_t{budget.components()} * stored +
               2ULL * std::min(stored, k - std::min(l, context - stored)) * model.head_dim) *
              of_element;
      // q, k and v of the token, and the numbers of k tokens per head.
      from_gpu +=
          (model.query_bytes({KvHead{0}, model.kv_heads}) + model.kv_bytes_per_token_and_layer()).value * kLayers +
          4ULL * k * model.kv_heads * kLayers;
    }
    CAPTURE(s, mini_batches, unit);
    CHECK(step.read == read);
    CHECK(step.to_gpu == to_gpu);
    CHECK(step.from_gpu == from_gpu);
  }
}

TEST_CASE("sequences of at most k tokens are copied as a whole and read no components") {
  PlannerInputs in = inputs(1, 3);
  SparqPlanner planner(in, {.budget = {.r = 3, .k = 1000}, .written_tokens = 4}, {});
  std::uint64_t reads = 0;
  for (const Operation& op : all_operations(planner)) {
    CHECK((op.kind != OpKind::select_tokens || op.resource.kind == ResourceKind::host));
    if (op.kind != OpKind::read_file) continue;
    ++reads;
    CHECK(std::get<FileWork>(op.work).rows.value().kind == Kind::tokens);
    std::uint64_t tokens = 0;
    for (const std::uint32_t prompt : kPrompts) tokens += (prompt + op.tag.step) / 4 * 4;
    CHECK(written(op, TensorClass::fetched_kv) == small_model().kv_bytes_per_token_and_layer() * tokens);
  }
  CHECK(reads == 2 * kLayers);
}

TEST_CASE("every token is written to both files once, when its unit is complete, and read only afterwards") {
  const std::uint32_t mini_batches = GENERATE(1U, 3U), unit = GENERATE(1U, 4U, 7U);
  SparqPlanner planner = plan(inputs(mini_batches), unit);
  std::map<std::string, std::map<std::uint32_t, std::uint32_t>> stored;  // file, sequence: tokens
  std::map<std::string, std::vector<FileRange>> ranges;
  for (const Operation& op : all_operations(planner)) {
    const auto* work = std::get_if<FileWork>(&op.work);
    if (work == nullptr) continue;
    for (const HeadRows::Sequence& of : work->rows.value().sequences) {
      std::uint32_t& have = stored[work->file][of.sequence.value];
      if (op.kind == OpKind::read_file) {
        CHECK(of.stored == have);
        continue;
      }
      CHECK(of.first == have);
      CHECK(of.stored % unit == 0);
      have = of.stored;
    }
    if (op.kind == OpKind::write_file)
      for (const FileRange& range : work->ranges) ranges[work->file].push_back(range);
  }
  for (const auto& [file, sequences] : stored)
    for (const auto& [sequence, tokens] : sequences) CHECK(tokens == (kPrompts[sequence] + 12) / unit * unit);
  for (auto& [file, all] : ranges) {
    std::ranges::sort(all);
    for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i - 1].offset + all[i - 1].size <= all[i].offset);
  }
}

TEST_CASE("flexgen-sparq: tensors are where operations read them, from any step on, in any order of completion") {
  for (const std::uint32_t first : {0U, 3U, 11U})
    for (const std::uint32_t mini_batches : {1U, 3U})
      for (const std::int64_t drive : {1, 50}) {
        PlannerInputs in = inputs(mini_batches);
        in.drives = 2;
        if (first > 0) in.span = {.prefill = false, .first_step = first, .decode_steps = 12 - first};
        SparqPlanner planner = plan(in, 4);
        FunctionBackend backend(
            [&](const Operation& op) { return SimTime{op.resource.kind == ResourceKind::file ? drive : 10}; });
        Router router;
        for (std::size_t kind = 0; kind < kResourceKinds; ++kind) router.add(static_cast<ResourceKind>(kind), backend);
        Executor executor(planner, router, {});
        CHECK_NOTHROW(run(executor));
      }
}

TEST_CASE("flexgen-sparq refuses what cannot be") {
  const PlannerInputs in = inputs(1);
  CHECK_THROWS_AS(SparqPlanner(in, {.budget = kBudget, .written_tokens = 0}, {}), UserError);
  CHECK_THROWS_AS(SparqPlanner(in, {.budget = kBudget, .kv_buffers = 0}, {}), UserError);
  CHECK_THROWS_AS(SparqPlanner(in, {.budget = {.r = 9}}, {}), UserError);
}

}  // namespace test_flexgen_sparq
