// Runs the operations of a planner in simulated time, driven by events: it never waits and owns no thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "base/units.h"
#include "host_runtime/core/planner/operation_backend.h"
#include "host_runtime/core/planner/path_breakdown.h"
#include "host_runtime/core/planner/planner.h"

namespace csdsim::host {

/// How a drive's operation spent its time; waiting counts as what it waited for. The rest is PathPart::drive_other.
struct DriveSplit {
  SimTime link = {};
  SimTime flash = {};
  SimTime engine = {};
};

/// Operations that a resource of each kind runs at a time; 0: no limit, it queues them itself.
using SlotTable = std::array<std::uint32_t, kResourceKinds>;

/// Processors and links one; drives and files no limit.
constexpr SlotTable default_slots() {
  SlotTable slots{};
  for (const ResourceKind kind :
       {ResourceKind::gpu, ResourceKind::host, ResourceKind::host_to_gpu, ResourceKind::gpu_to_host})
    slots[static_cast<std::size_t>(kind)] = 1;
  return slots;
}

struct ExecutorConfig {
  std::uint32_t window_steps = 2;  ///< steps with unfinished operations that are held at a time
  SlotTable slots = default_slots();
};

/// A finished operation, for traces.
struct OperationRecord {
  OperationId id;
  OpKind kind = OpKind::embed;
  Resource resource;
  OpTag tag;
  SimTime start;
  SimTime end;
};

/// A step ends when the last of its mini-batches has sampled; what it leaves running behind is not part of it.
struct StepRecord {
  Phase phase = Phase::prefill;
  std::uint32_t step = 0;
  bool ended = false;
  SimTime end;
  PathBreakdown path;                   ///< of the critical path to `end` from the start of the phase (see below)
  std::vector<SimTime> layer_end;       ///< [layer] when its last operation ended, K and V in the drives
  std::vector<SimTime> layer_computed;  ///< [layer] when its last OpKind::finish_layer ended
};

struct ExecutionReport {
  SimTime start;
  SimTime end;                                ///< of the last operation
  std::uint64_t operations = 0;               ///< completed
  std::array<SimTime, kOpKinds> kind_time{};  ///< sum over the operations of each kind
  std::map<Resource, SimTime> busy;           ///< time with at least one operation
  std::vector<StepRecord> steps;              ///< in the planner's order

  /// What step i added to the critical path of its phase. The parts of one step may be negative where mini-batches
  /// overlap; they add up to the parts of the phase, and the total is the time since the step before.
  PathBreakdown step_path(std::size_t i) const {
    return i == 0 || steps[i].phase != steps[i - 1].phase ? steps[i].path : steps[i].path - steps[i - 1].path;
  }
  SimTime step_time(std::size_t i) const { return step_path(i).total(); }
};

/// Operations start as soon as their dependencies are complete and their resource is free. A resource runs
/// as many operations at a time as ExecutorConfig::slots says for its kind. Those that became ready first go first; of
/// two that became ready at the same time, the one with the smaller id.
///
/// The critical path is carried forward: each operation inherits the path of the event that released it (its last
/// dependency, or the operation whose end freed the resource or opened the window) and adds its own time. This equals
/// walking back from the last operation, in bounded memory. The path of decode starts where the prefill's first tokens
/// are out: what was on the way before is cut off there.
///
///   Executor ex(*planner, backend, {});
///   ex.start(now);                                   // then, whenever something happens:
///   ex.complete(id, now, split);                     // a drive reports
///   ex.advance(now);                                 // completes and starts what is due
///   notify(ex.next_event());
class Executor {
 public:
  using Observer = std::function<void(const OperationRecord&)>;

  Executor(Planner& planner, OperationBackend& backend, const ExecutorConfig& config);

  void set_observer(Observer observer) { observer_ = std::move(observer); }

  /// Begins the run and starts what can start. Once.
  void start(SimTime now);
  /// Reports the end, at `at` >= now(), of an operation whose start() returned nothing. Takes effect in advance(at).
  /// InternalError if it is not running, or if the split exceeds its duration.
  void complete(OperationId id, SimTime at, const DriveSplit& split = {});
  /// When advance() has something to do next; SimTime::max() while only the backend can tell.
  SimTime next_event() const { return events_.empty() ? SimTime::max() : events_.top().first; }
  /// Carries out everything that is due up to and including `until`. InternalError if time runs backwards or nothing
  /// is running although the plan is not finished.
  void advance(SimTime until);

  bool finished() const { return started_ && exhausted_ && steps_.empty(); }
  SimTime now() const { return now_; }
  const ExecutionReport& report() const { return report_; }

 private:
  enum class State : std::uint8_t { waiting, ready, running, modelled, ending, done };
  struct Node {
    Operation op;
    State state = State::waiting;
    std::uint32_t unmet = 0;
    std::vector<OperationId> dependents;
    SimTime ready;
    SimTime begin;
    DriveSplit split;
    PathBreakdown path;  ///< up to ready, then up to begin, then up to the end
  };
  struct ResourceState {
    std::uint32_t slots = 1;  ///< 0: unlimited
    std::uint32_t running = 0;
    std::set<std::pair<SimTime, OperationId>> queue;
    SimTime busy_since;
    PathBreakdown freed_path;  ///< of the operation that ended last
  };
  struct Step {
    std::size_t record;  ///< index in report_.steps
    std::uint64_t operations;
    std::uint64_t unfinished;
    std::uint64_t unsampled;
  };

  Node& node(OperationId id) { return nodes_[id.value - base_]; }
  Step& step_of(OperationId id);
  void fill_window();
  void admit(std::vector<Operation> operations);
  void make_ready(Node& n);
  void finish(Node& n);
  void charge(Node& n) const;
  void restart_path();
  void dispatch();
  void begin(Node& n, ResourceState& r);

  Planner& planner_;
  OperationBackend& backend_;
  ExecutorConfig config_;
  Observer observer_;
  OperationSink sink_;
  std::deque<Node> nodes_;  ///< of the steps in the window
  std::uint64_t base_ = 0;  ///< id of nodes_.front()
  std::deque<Step> steps_;
  std::map<Resource, ResourceState> resources_;
  using Event = std::pair<SimTime, OperationId>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  SimTime path_start_;         ///< of the phase
  PathBreakdown window_path_;  ///< of the operation that made room for the newest step
  std::uint64_t running_ = 0;
  bool started_ = false;
  bool exhausted_ = false;
  SimTime now_;
  ExecutionReport report_;
};

}  // namespace csdsim::host
