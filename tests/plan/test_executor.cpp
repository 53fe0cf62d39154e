#include <catch2/catch.hpp>
#include <map>

#include "base/error.h"
#include "tests/support/planner_support.h"

namespace test_executor {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

/// Steps given as lists of operations: {kind, resource, layer, deps}.
struct Listed {
  OpKind kind;
  Resource resource;
  std::optional<std::uint32_t> layer;
  std::vector<std::uint64_t> deps;
};

class ListPlanner final : public Planner {
 public:
  explicit ListPlanner(std::vector<std::vector<Listed>> steps) : steps_(std::move(steps)) {}
  bool next_step(OperationSink& sink) override {
    if (next_ == steps_.size()) return false;
    for (const Listed& l : steps_[next_]) {
      OpTag tag{Phase::decode, static_cast<std::uint32_t>(next_)};
      if (l.layer) tag.layer = LayerId{*l.layer};
      std::vector<OperationId> deps;
      for (const std::uint64_t d : l.deps) deps.push_back(OperationId{d});
      Work work = ComputeWork{};
      if (l.resource.kind == ResourceKind::host_to_gpu) work = LinkWork{Bytes{1}, LinkPayload::kv};
      if (l.resource.kind == ResourceKind::gpu_to_host) work = LinkWork{Bytes{1}, LinkPayload::activations};
      sink.add(l.kind, l.resource, tag, work, deps);
    }
    ++next_;
    return true;
  }
  std::size_t emitted() const { return next_; }

 private:
  std::vector<std::vector<Listed>> steps_;
  std::size_t next_ = 0;
};

/// GPU and links take 10 ps, host 3 ps; drives report for themselves.
class ManualDrives final : public OperationBackend {
 public:
  std::optional<SimTime> start(const Operation& op, SimTime now) override {
    started[op.id.value] = now;
    if (op.resource.kind == ResourceKind::drive_kv) return std::nullopt;
    return op.resource.kind == ResourceKind::host ? SimTime{3} : SimTime{10};
  }
  std::map<std::uint64_t, SimTime> started;
};

constexpr Resource kGpu = Resource::gpu();
constexpr Resource kHost{ResourceKind::host, 0};
constexpr Resource kDrive = Resource::drive(DriveIndex{0});

double part(const PathBreakdown& p, PathPart which, bool in_layer) {
  return static_cast<double>((in_layer ? p.layered : p.fixed)[static_cast<std::size_t>(which)].ps);
}

}  // namespace

TEST_CASE("an operation ends at start + duration, not a picosecond earlier") {
  ListPlanner planner({{{OpKind::embed, kGpu, {}, {}}, {OpKind::sample, kHost, {}, {0}}}});
  ManualDrives backend;
  Executor ex(planner, backend, {});
  ex.start(SimTime{100});
  CHECK(ex.next_event().ps == 110);
  ex.advance(SimTime{109});
  CHECK(backend.started.size() == 1);
  ex.advance(SimTime{110});
  CHECK(backend.started.at(1).ps == 110);
  CHECK(ex.next_event().ps == 113);
  ex.advance(SimTime{112});
  CHECK_FALSE(ex.finished());
  ex.advance(SimTime{500});
  CHECK(ex.finished());
  CHECK(ex.report().end.ps == 113);
  CHECK(ex.report().busy.at(kGpu).ps == 10);
  CHECK(ex.report().busy.at(kHost).ps == 3);
  CHECK(ex.now().ps == 500);
}

TEST_CASE("one advance over a long time does everything that falls in it") {
  ListPlanner planner({{{OpKind::embed, kGpu, {}, {}}, {OpKind::embed, kGpu, {}, {}}, {OpKind::sample, kGpu, {}, {1}}},
                       {{OpKind::embed, kGpu, {}, {2}}, {OpKind::sample, kGpu, {}, {3}}}});
  ManualDrives backend;
  Executor ex(planner, backend, {});
  ex.start({});
  ex.advance(SimTime{1'000'000});
  CHECK(ex.finished());
  CHECK(ex.report().end.ps == 50);
  CHECK(ex.report().steps[0].end.ps == 30);
  CHECK(ex.report().step_time(1).ps == 20);
  CHECK(ex.report().operations == 5);
}

TEST_CASE("a drive's operation ends when the drive says so, and its split is attributed") {
  ListPlanner planner(
      {{{OpKind::embed, kGpu, {}, {}}, {OpKind::attend, kDrive, 0, {0}}, {OpKind::sample, kGpu, {}, {1}}}});
  ManualDrives backend;
  Executor ex(planner, backend, {});
  ex.start({});
  ex.advance(SimTime{10});
  CHECK(ex.next_event() == SimTime::max());
  const DriveSplit split{.host = SimTime{3}, .link = SimTime{5}, .flash = SimTime{14}, .engine = SimTime{2}};
  CHECK_THROWS_AS(ex.complete(OperationId{1}, SimTime{33}, split), InternalError);
  ex.complete(OperationId{1}, SimTime{40}, split);
  CHECK(ex.next_event().ps == 40);
  CHECK_THROWS_AS(ex.complete(OperationId{1}, SimTime{41}), InternalError);  // reported before
  ex.advance(SimTime{39});
  CHECK(backend.started.size() == 2);
  ex.advance(SimTime{40});
  ex.advance(SimTime{50});
  REQUIRE(ex.finished());
  const PathBreakdown& path = ex.report().steps[0].path;
  CHECK(path.total().ps == 50);
  CHECK(part(path, PathPart::gpu, false) == 20);
  CHECK(part(path, PathPart::host, true) == 3);
  CHECK(part(path, PathPart::kv_link, true) == 5);
  CHECK(part(path, PathPart::flash, true) == 14);
  CHECK(part(path, PathPart::engine, true) == 2);
  CHECK(part(path, PathPart::drive_other, true) == 6);
  CHECK_THROWS_AS(ex.complete(OperationId{1}, SimTime{60}), InternalError);
}

TEST_CASE("links are charged by what they carry") {
  ListPlanner planner({{{OpKind::transfer, {ResourceKind::host_to_gpu, 0}, 0, {}},
                        {OpKind::transfer, {ResourceKind::gpu_to_host, 0}, 0, {0}},
                        {OpKind::sample, kHost, {}, {1}}}});
  ManualDrives backend;
  Executor ex(planner, backend, {});
  run(ex);
  const PathBreakdown& path = ex.report().steps[0].path;
  CHECK(part(path, PathPart::kv_link, true) == 10);
  CHECK(part(path, PathPart::other_link, true) == 10);
  CHECK(part(path, PathPart::host, false) == 3);
}

TEST_CASE("the path runs through whatever released an operation: dependency, resource or window") {
  // The GPU is busy with 0 and 1 when 2 is ready at 0: 2 starts when 1 frees the GPU.
  ListPlanner planner({{{OpKind::embed, kGpu, 7, {}}, {OpKind::embed, kGpu, {}, {}}, {OpKind::sample, kGpu, {}, {}}},
                       {{OpKind::sample, kHost, {}, {}}}});
  ManualDrives backend;
  Executor ex(planner, backend, {.window_steps = 1});
  const auto records = run(ex);
  CHECK(backend.started.at(2).ps == 20);
  CHECK(backend.started.at(3).ps == 30);  // no dependency, but the window held it
  const PathBreakdown& path = ex.report().steps[1].path;
  CHECK(part(path, PathPart::gpu, true) == 10);
  CHECK(part(path, PathPart::gpu, false) == 20);
  CHECK(part(path, PathPart::host, false) == 3);
}

TEST_CASE("drives take as many commands as they are allowed, in order of readiness") {
  const std::vector<std::vector<Listed>> steps = {{{OpKind::attend, kDrive, 0, {}},
                                                   {OpKind::attend, kDrive, 0, {}},
                                                   {OpKind::attend, kDrive, 0, {}},
                                                   {OpKind::sample, kGpu, {}, {0, 1, 2}}}};
  for (const std::uint32_t commands : {0U, 1U, 2U}) {
    ListPlanner planner(steps);
    ManualDrives backend;
    Executor ex(planner, backend, {.slots = drive_slots(commands)});
    ex.start({});
    CHECK(backend.started.size() == (commands == 0 ? 3 : commands));
    ex.complete(OperationId{0}, SimTime{8});
    ex.advance(SimTime{8});
    CHECK(backend.started.size() == (commands == 0 ? 3 : commands + 1));
    if (commands == 2) CHECK(backend.started.at(2).ps == 8);
    CHECK(ex.report().busy.count(kDrive) == (commands == 1 ? 1 : 0));  // the others keep it busy without a gap
  }
}

TEST_CASE("the window bounds what is planned ahead") {
  std::vector<std::vector<Listed>> steps;
  for (std::uint64_t s = 0; s < 50; ++s)
    steps.push_back({{OpKind::sample, kGpu, {}, s == 0 ? std::vector<std::uint64_t>{} : std::vector{s - 1}}});
  for (const std::uint32_t window : {1U, 2U, 5U}) {
    ListPlanner planner(steps);
    ManualDrives backend;
    Executor ex(planner, backend, {.window_steps = window});
    ex.start({});
    for (std::size_t done = 0; !ex.finished(); ++done) {
      CHECK(planner.emitted() == std::min<std::size_t>(50, done + window));
      ex.advance(ex.next_event());
    }
    CHECK(ex.report().end.ps == 500);
  }
  ListPlanner planner(steps);
  ManualDrives backend;
  CHECK_THROWS_AS(Executor(planner, backend, {.window_steps = 0}), UserError);
}

TEST_CASE("misuse is refused") {
  ListPlanner planner({{{OpKind::attend, kDrive, {}, {}}, {OpKind::sample, kGpu, {}, {0}}}});
  ManualDrives backend;
  Executor ex(planner, backend, {});
  CHECK_THROWS_AS(ex.advance({}), InternalError);
  ex.start(SimTime{10});
  CHECK_THROWS_AS(ex.start(SimTime{10}), InternalError);
  CHECK_THROWS_AS(ex.advance(SimTime{9}), InternalError);
  CHECK_THROWS_AS(ex.complete(OperationId{1}, SimTime{10}), InternalError);  // waits
  CHECK_THROWS_AS(ex.complete(OperationId{9}, SimTime{10}), InternalError);
  CHECK_THROWS_AS(ex.complete(OperationId{0}, SimTime{9}), InternalError);
}

}  // namespace test_executor
