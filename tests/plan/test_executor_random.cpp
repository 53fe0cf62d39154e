// The executor against a list scheduler that looks at everything all the time, on random graphs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "tests/support/planner_support.h"

namespace test_executor_random {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

struct Graph {
  std::vector<std::vector<Operation>> steps;  // ids count up over all of them
  std::vector<Operation> ops;
  std::vector<std::int64_t> duration;
  std::uint32_t window = 1;
  std::uint32_t drive_commands = 0;
};

Graph random_graph(std::mt19937_64& rng, bool zero_durations) {
  const auto pick = [&](std::uint64_t n) { return rng() % n; };
  Graph g;
  g.window = static_cast<std::uint32_t>(1 + pick(3));
  g.drive_commands = static_cast<std::uint32_t>(pick(3));
  const std::uint64_t steps = 1 + pick(6);
  for (std::uint64_t s = 0; s < steps; ++s) {
    auto& step = g.steps.emplace_back();
    const std::uint64_t count = 1 + pick(12);
    for (std::uint64_t i = 0; i < count; ++i) {
      Operation op;
      op.id = OperationId{g.ops.size()};
      op.tag.phase = Phase::decode;
      op.tag.step = static_cast<std::uint32_t>(s);
      if (pick(2)) op.tag.layer = LayerId{static_cast<std::uint32_t>(pick(3))};
      op.kind = i + 1 == count ? OpKind::sample : OpKind::attend;
      const Resource choices[] = {
          Resource::gpu(), {ResourceKind::host, 0}, Resource::drive(DriveIndex{0}), Resource::drive(DriveIndex{1})};
      op.resource = choices[pick(4)];
      for (std::uint64_t d = pick(4); d > 0 && op.id.value > 0; --d) op.deps.push_back(OperationId{pick(op.id.value)});
      std::sort(op.deps.begin(), op.deps.end());
      op.deps.erase(std::unique(op.deps.begin(), op.deps.end()), op.deps.end());
      step.push_back(op);
      g.ops.push_back(op);
      g.duration.push_back(static_cast<std::int64_t>((zero_durations ? 0 : 1) + pick(6)));  // short: many ties
    }
  }
  return g;
}

class GraphPlanner final : public Planner {
 public:
  explicit GraphPlanner(const Graph& g) : graph_(g) {}
  bool next_step(OperationSink& sink) override {
    if (next_ == graph_.steps.size()) return false;
    for (const Operation& op : graph_.steps[next_++]) sink.add(op.kind, op.resource, op.tag, op.work, op.deps);
    return true;
  }

 private:
  const Graph& graph_;
  std::size_t next_ = 0;
};

struct Naive {
  std::vector<std::int64_t> admitted, ready, start, end;
  std::int64_t now = 0;
};

/// Repeats "end what ends, admit, make ready, start the first of each free resource" until nothing changes, then moves
/// to the next end. Quadratic and without any state but the four times of every operation.
Naive schedule(const Graph& g) {
  const std::size_t n = g.ops.size();
  Naive t{std::vector<std::int64_t>(n, -1), std::vector<std::int64_t>(n, -1), std::vector<std::int64_t>(n, -1),
          std::vector<std::int64_t>(n, -1)};
  std::vector<bool> done(n, false);
  for (;;) {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < n; ++i)
        if (t.end[i] == t.now && !done[i]) done[i] = changed = true;
      std::uint32_t open = 0;
      std::size_t first = 0;
      bool front_done = true;  // only a run of complete steps from the front leaves the window
      for (const auto& step : g.steps) {
        const bool complete =
            std::all_of(step.begin(), step.end(), [&](const Operation& op) { return done[op.id.value]; });
        front_done = front_done && complete;
        if (!front_done) ++open;
        if (open <= g.window)
          for (std::size_t i = first; i < first + step.size(); ++i)
            if (t.admitted[i] < 0) {
              t.admitted[i] = t.now;
              changed = true;
            }
        first += step.size();
      }
      for (std::size_t i = 0; i < n; ++i)
        if (t.admitted[i] >= 0 && t.ready[i] < 0 &&
            std::all_of(g.ops[i].deps.begin(), g.ops[i].deps.end(), [&](OperationId d) { return done[d.value]; })) {
          t.ready[i] = t.now;
          changed = true;
        }
      if (changed) continue;
      std::vector<std::size_t> waiting;
      for (std::size_t i = 0; i < n; ++i)
        if (t.ready[i] >= 0 && t.start[i] < 0) waiting.push_back(i);
      std::stable_sort(waiting.begin(), waiting.end(),
                       [&](std::size_t a, std::size_t b) { return t.ready[a] < t.ready[b]; });
      for (const std::size_t i : waiting) {
        std::uint32_t running = 0;
        for (std::size_t j = 0; j < n; ++j)
          running += g.ops[j].resource == g.ops[i].resource && t.start[j] >= 0 && !done[j];
        const bool drive = g.ops[i].resource.kind == ResourceKind::drive_kv;
        const std::uint32_t slots = drive ? g.drive_commands : 1;
        if (slots != 0 && running >= slots) continue;
        t.start[i] = t.now;
        t.end[i] = t.now + g.duration[i];
        changed = true;
      }
    }
    std::int64_t next = INT64_MAX;
    for (std::size_t i = 0; i < n; ++i)
      if (t.end[i] > t.now) next = std::min(next, t.end[i]);
    if (next == INT64_MAX) return t;
    t.now = next;
  }
}

/// Critical path of operation `last` by walking back: the highest id among those that could have released each one.
PathBreakdown walk_back(const Graph& g, const Naive& t, std::size_t last) {
  PathBreakdown path;
  for (std::size_t i = last;;) {
    PathPart part = PathPart::gpu;
    if (g.ops[i].resource.kind == ResourceKind::host) part = PathPart::host;
    if (g.ops[i].resource.kind == ResourceKind::drive_kv) part = PathPart::drive_other;
    path.add(part, g.ops[i].tag.layer.has_value(), SimTime{t.end[i] - t.start[i]});
    path.add(PathResource::of(g.ops[i].resource.kind), g.ops[i].tag.layer.has_value(), SimTime{t.end[i] - t.start[i]});
    if (t.start[i] == 0) return path;
    std::size_t releaser = 0;
    std::int64_t last_dep = -1;
    for (const OperationId d : g.ops[i].deps) last_dep = std::max(last_dep, t.end[d.value]);
    for (std::size_t j = 0; j < g.ops.size(); ++j) {
      if (t.end[j] != t.start[i] || j == i) continue;
      const bool resource = t.ready[i] < t.start[i];
      const bool window = !resource && last_dep <= t.admitted[i];
      const auto& deps = g.ops[i].deps;
      if (resource ? g.ops[j].resource == g.ops[i].resource
                   : window || std::find(deps.begin(), deps.end(), OperationId{j}) != deps.end())
        releaser = j;
    }
    REQUIRE(t.end[releaser] == t.start[i]);
    i = releaser;
  }
}

}  // namespace

TEST_CASE("random graphs run as a naive list scheduler runs them") {
  const std::uint64_t seed = GENERATE(1, 2, 3, 4);
  CAPTURE(seed);
  std::mt19937_64 rng(seed);
  for (int trial = 0; trial < 500; ++trial) {
    CAPTURE(trial);
    const Graph g = random_graph(rng, trial % 2 == 0);
    const Naive expected = schedule(g);
    GraphPlanner planner(g);
    FunctionBackend backend([&](const Operation& op) { return SimTime{g.duration[op.id.value]}; });
    Executor ex(planner, backend, {.window_steps = g.window, .slots = drive_slots(g.drive_commands)});
    const auto records = run(ex);
    REQUIRE(records.size() == g.ops.size());
    for (const OperationRecord& r : records) {
      REQUIRE(r.start.ps == expected.start[r.id.value]);
      REQUIRE(r.end.ps == expected.end[r.id.value]);
    }
    REQUIRE(ex.report().end.ps == expected.now);
    for (const StepRecord& s : ex.report().steps) REQUIRE(s.path.total() == s.end);
    if (trial % 2 == 0) continue;  // with zero durations the releaser is not unique
    for (std::size_t s = 0; s < g.steps.size(); ++s)
      REQUIRE(ex.report().steps[s].path == walk_back(g, expected, g.steps[s].back().id.value));
  }
}

TEST_CASE("it does not matter whether a backend knows durations or reports ends") {
  std::mt19937_64 rng(11);
  for (int trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    const Graph g = random_graph(rng, false);
    GraphPlanner planner(g), other(g);
    FunctionBackend known([&](const Operation& op) { return SimTime{g.duration[op.id.value]}; });
    Executor a(planner, known, {.window_steps = g.window, .slots = drive_slots(g.drive_commands)});
    auto expected = run(a);

    struct Reporting final : OperationBackend {
      explicit Reporting(const Graph& graph) : g(graph) {}
      std::optional<SimTime> start(const Operation& op, SimTime now) override {
        if (op.id.value % 2) return SimTime{g.duration[op.id.value]};
        pending.emplace_back(now + SimTime{g.duration[op.id.value]}, op.id);
        return std::nullopt;
      }
      const Graph& g;
      std::vector<std::pair<SimTime, OperationId>> pending;
    } reporting(g);
    Executor b(other, reporting, {.window_steps = g.window, .slots = drive_slots(g.drive_commands)});
    std::vector<OperationRecord> records;
    b.set_observer([&](const OperationRecord& r) { records.push_back(r); });
    b.start({});
    while (!b.finished()) {
      SimTime next = b.next_event();
      for (const auto& p : reporting.pending) next = std::min(next, p.first);
      const auto due = std::partition(reporting.pending.begin(), reporting.pending.end(),
                                      [&](const auto& p) { return p.first != next; });
      for (auto it = due; it != reporting.pending.end(); ++it) b.complete(it->second, it->first);
      reporting.pending.erase(due, reporting.pending.end());
      b.advance(next);
    }
    REQUIRE(records.size() == expected.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      REQUIRE(records[i].id == expected[i].id);
      REQUIRE(records[i].start == expected[i].start);
      REQUIRE(records[i].end == expected[i].end);
    }
  }
}

}  // namespace test_executor_random
