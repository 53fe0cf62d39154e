// Plans of h2o, infinigen and leoam: which rows move and when, and that tensors are where operations read them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/core/systems/chosen_rows/chosen_rows_systems.h"
#include "tests/support/planner_support.h"

namespace test_chosen_rows {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kLayers = 5;
const std::vector<std::uint32_t> kPrompts = {40, 9, 25};

template <class System>
System system_of(Ratio on_gpu, Ratio on_host) {
  System system;
  system.ratio = Ratio{1, 4};
  system.rows.kv_on_gpu = on_gpu;
  system.rows.kv_on_host = on_host;
  system.rows.written_tokens = 8;
  return system;
}

struct Run {
  std::vector<Operation> resolved;  ///< in the order of their starts
  std::vector<OperationRecord> records;
};

Run run_of(const OffloadSystem& system, const PlannerInputs& in, std::int64_t file_time = 10) {
  const auto planner = system.plan(in);
  const RunFeatures features = system.features(in);
  for (const auto& feature : features) feature->begin({.tokens = [] { return std::make_unique<AnyTokens>(); }});
  Run out;
  FunctionBackend backend([&](const Operation& op) {
    out.resolved.push_back(op);
    // Layers are long enough to hide what is not chosen too late.
    if (op.kind == OpKind::finish_layer) return SimTime{200};
    if (op.resource.kind == ResourceKind::gpu_to_host) return SimTime{file_time};
    return SimTime{op.resource.kind == ResourceKind::file ? file_time : 10};
  });
  Router router;
  for (std::size_t kind = 0; kind < kResourceKinds; ++kind) router.add(static_cast<ResourceKind>(kind), backend);
  router.set_features(features);
  Executor executor(*planner, router, {});
  out.records = run(executor);
  return out;
}

template <class System>
void check_places() {
  for (const auto& [on_gpu, on_host] : {std::pair<Ratio, Ratio>{{0, 1}, {0, 1}},
                                        {{1, 4}, {1, 4}},
                                        {{1, 1}, {0, 1}},
                                        {{0, 1}, {1, 1}},
                                        {{1, 2}, {1, 2}}})
    for (const std::uint32_t first : {0U, 3U, 11U})
      for (const std::uint32_t mini_batches : {1U, 3U})
        for (const std::int64_t file : {1, 50}) {
          PlannerInputs in = small_inputs(kLayers, kPrompts, 13, mini_batches);
          in.whole_layers = first == 3 ? 4 * kLayers : 0;  // a sampled run
          if (first > 0) in.span = {.prefill = false, .first_step = first, .decode_steps = 12 - first};
          CAPTURE(System::kKind, on_gpu.value(), on_host.value(), first, mini_batches, file);
          CHECK_NOTHROW(run_of(system_of<System>(on_gpu, on_host), in, file));
        }
}

/// Rows of the operations on files; `written` is checked against what is read.
struct FileRows {
  std::uint64_t written = 0, overwritten = 0, read = 0, steps = 0;
};

template <class System>
FileRows rows_in_files() {
  const PlannerInputs in = small_inputs(kLayers, kPrompts, 13, 1);
  const Run out = run_of(system_of<System>({0, 1}, {0, 1}), in);
  const std::uint64_t row = in.model.kv_bytes_per_token_and_head().value;
  std::map<std::string, std::set<std::uint64_t>> known;
  FileRows rows;
  for (const Operation& op : out.resolved) {
    const auto* const work = std::get_if<FileWork>(&op.work);
    if (work == nullptr) continue;
    if (op.kind == OpKind::read_file) ++rows.steps;
    std::set<std::uint64_t> of_operation;
    for (const FileRange& range : work->ranges) {
      REQUIRE(range.size.value % row == 0);
      for (std::uint64_t at = range.offset.value; at < range.offset.value + range.size.value; at += row) {
        REQUIRE(of_operation.insert(at).second);
        if (op.kind == OpKind::read_file) {
          REQUIRE(known[work->file].contains(at));
          ++rows.read;
        } else {
          ++(known[work->file].insert(at).second ? rows.written : rows.overwritten);
        }
      }
    }
  }
  return rows;
}

/// The earliest start of operations that bring rows of a layer, in decode step 5, and the record of another kind there.
const OperationRecord& record_of(const Run& run, std::uint32_t layer, OpKind kind) {
  for (const OperationRecord& r : run.records)
    if (r.tag.phase == Phase::decode && r.tag.step == 5 && r.tag.layer == LayerId{layer} && r.kind == kind) return r;
  throw InternalError("no such operation");
}

}  // namespace

TEST_CASE("chosen rows: tensors are where operations read them, from any step on and wherever K and V are") {
  check_places<H2o>();
  check_places<Infinigen>();
  check_places<Leoam>();
}

TEST_CASE("chosen rows: nothing is read that has not been written, and no more than was chosen") {
  const std::uint64_t heads = 4, steps = 12;
  const auto budget = [&](std::uint32_t extra, auto&& of) {
    std::uint64_t sum = 0;
    for (const std::uint32_t prompt : kPrompts)
      for (std::uint32_t step = 0; step < steps; ++step) sum += of(TokenBudget(Ratio{1, 4}).at(prompt + step + extra));
    return sum;
  };
  SECTION("h2o reads all that it keeps, and each step writes one row of each head") {
    const FileRows rows = rows_in_files<H2o>();
    std::uint64_t kept = 0, in_the_end = 0;
    for (const std::uint32_t prompt : kPrompts) {
      kept += TokenBudget(Ratio{1, 4}).at(prompt);
      in_the_end += TokenBudget(Ratio{1, 4}).at(prompt + 12);
    }
    CHECK(rows.written == in_the_end * heads * kLayers);
    CHECK(rows.written + rows.overwritten == (kept + 3 * steps) * heads * kLayers);
    CHECK(rows.read == budget(0, [](std::uint32_t k) { return k; }) * heads * kLayers);
  }
  SECTION("infinigen reads all rows of its first two layers, and of the others those that are chosen") {
    const FileRows rows = rows_in_files<Infinigen>();
    std::uint64_t all = 0, written = 0;
    for (const std::uint32_t prompt : kPrompts) {
      written += (prompt + 12) / 8 * 8;
      for (std::uint32_t step = 0; step < steps; ++step) all += (prompt + step) / 8 * 8;
    }
    const std::uint64_t chosen = budget(1, [](std::uint32_t k) { return k - 1; });
    CHECK(rows.overwritten == 0);
    CHECK(rows.written == written * heads * kLayers);
    CHECK(rows.read > 2 * all * heads);
    CHECK(rows.read <= 2 * all * heads + 3 * chosen * heads);
  }
  SECTION("leoam reads chosen rows only") {
    const FileRows rows = rows_in_files<Leoam>();
    CHECK(rows.overwritten == 0);
    CHECK(rows.read > 0);
    CHECK(rows.read <= budget(1, [](std::uint32_t k) { return k - 1; }) * heads * kLayers);
  }
}

TEST_CASE("chosen rows: infinigen fetches a layer under the one before it, leoam when its chunks are bounded") {
  const PlannerInputs in = small_inputs(kLayers, {40}, 13, 1);
  const Run ahead = run_of(system_of<Infinigen>({0, 1}, {0, 1}), in);
  for (std::uint32_t layer = 2; layer < kLayers; ++layer) {
    CAPTURE(layer);
    const SimTime fetched = record_of(ahead, layer, OpKind::read_file).start;
    CHECK(fetched >= record_of(ahead, layer, OpKind::select_tokens).end);
    CHECK(record_of(ahead, layer, OpKind::select_tokens).start >=
          record_of(ahead, layer - 1, OpKind::attention_inputs).end);
    CHECK(fetched < record_of(ahead, layer - 1, OpKind::finish_layer).end);
  }
  const Run late = run_of(system_of<Leoam>({0, 1}, {0, 1}), in);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    CAPTURE(layer);
    const OperationRecord& bounded = record_of(late, layer, OpKind::select_tokens);
    CHECK(bounded.start >= record_of(late, layer, OpKind::attention_inputs).end);
    CHECK(record_of(late, layer, OpKind::read_file).start >= bounded.end);
  }
  // Rows that are known before the step come ahead, as far as the buffers of the GPU reach.
  const Run kept = run_of(system_of<H2o>({0, 1}, {0, 1}), in);
  for (std::uint32_t layer = 2; layer < kLayers; ++layer) {
    CAPTURE(layer);
    const SimTime fetched = record_of(kept, layer, OpKind::read_file).start;
    CHECK(fetched >= record_of(kept, layer - 2, OpKind::attention).end);
    CHECK(fetched < record_of(kept, layer - 1, OpKind::finish_layer).end);
  }
}

TEST_CASE("chosen rows: infinigen speculates with a product of all heads' columns, and a pass over the partial keys") {
  PlannerInputs in = small_inputs(kLayers, {40}, 13, 1);
  in.model.width = 128;
  in.model.head_dim = 16;  // three columns speculate
  const std::uint64_t columns = 8 * 3, context = 40 + 5 + 1;
  std::vector<ComputeWork> queries, choices;
  for (const Operation& op : run_of(system_of<Infinigen>({0, 1}, {0, 1}), in).resolved) {
    if (op.tag.phase != Phase::decode || op.tag.step != 5 || op.tag.layer != LayerId{3}) continue;
    if (op.kind == OpKind::attention_inputs) queries.push_back(std::get<ComputeWork>(op.work));
    if (op.kind == OpKind::select_tokens) choices.push_back(std::get<ComputeWork>(op.work));
  }
  REQUIRE(queries.size() == 2);  // speculated under the layer before, and computed
  CHECK(queries[0].flops == 2 * 128 * columns);
  CHECK(queries[0].weights == Bytes{128 * columns * 2});
  CHECK(queries[0].activations == Bytes{(128 + columns) * 2});
  REQUIRE(choices.size() == 1);
  CHECK(choices[0].flops == 2 * columns * context);
}

TEST_CASE("chosen rows with data: a token takes the row of the one that has left") {
  ChosenRows rows({.tokens = 3}, small_model(1), {{4}, 8});
  rows.keep(SequenceId{0}, LayerId{0}, 1, std::vector<std::uint32_t>{0, 2, 3});
  rows.keep(SequenceId{0}, LayerId{0}, 1, std::vector<std::uint32_t>{0, 3, 4});
  CHECK(rows.in_file(SequenceId{0}, LayerId{0}, 1) == std::vector<std::uint32_t>{0, 4, 3});
  rows.keep(SequenceId{0}, LayerId{0}, 1, std::vector<std::uint32_t>{0, 3, 4, 5});
  CHECK(rows.in_file(SequenceId{0}, LayerId{0}, 1) == std::vector<std::uint32_t>{0, 4, 3, 5});
  CHECK_THROWS_AS(rows.keep(SequenceId{0}, LayerId{0}, 1, std::vector<std::uint32_t>{0}), InternalError);
}

TEST_CASE("chosen rows: heads in neither memory need files, in pieces of the newest tokens") {
  const PlannerInputs in = small_inputs(kLayers, kPrompts, 13, 1);
  const SystemNeeds files = system_of<Infinigen>({1, 4}, {1, 4}).needs({.model = in.model, .workload = in.workload});
  CHECK(files.files == FilePath::file_system);
  CHECK(files.written_tokens == 8);
  CHECK(files.written_piece == in.model.kv_bytes_per_token_and_head() * 8);
  CHECK(system_of<H2o>({1, 4}, {1, 4}).needs({.model = in.model, .workload = in.workload}).written_tokens == 1);
  for (const std::uint64_t on_gpu : {0, 1, 2}) {
    CAPTURE(on_gpu);
    const Infinigen system = system_of<Infinigen>(Ratio::of(on_gpu, 2), Ratio::of(2 - on_gpu, 2));
    CHECK_FALSE(system.needs({.model = in.model, .workload = in.workload}).files);
  }
}

TEST_CASE("chosen rows: what cannot be is refused") {
  const PlannerInputs in = small_inputs(kLayers, kPrompts, 13, 1);
  H2o system = system_of<H2o>({0, 1}, {0, 1});
  system.rows.kv_buffers = 0;
  CHECK_THROWS_AS(system.plan(in), UserError);
  Leoam without = system_of<Leoam>({0, 1}, {0, 1});
  without.rows.written_tokens = 0;
  CHECK_THROWS_AS(without.plan(in), UserError);
}

}  // namespace test_chosen_rows
