// Runs the operations of a planner in simulated time. It is driven by events, never waits and owns no thread.
#pragma once

#include <algorithm>
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
#include "host_runtime/core/plan/operation_backend.h"
#include "host_runtime/core/plan/path_breakdown.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

/// The parts of the time of a drive's operation. Waiting time counts for the component that it waits for; the rest is
/// PathPart::drive_other.
struct DriveSplit {
  SimTime host = {};  ///< the host's cores worked on its commands, and the drive on no attention
  SimTime link = {};
  SimTime flash = {};
  SimTime engine = {};
  SimTime gpu = {};  ///< a GPU computed lost K and V again; part of both divisions
  /// The same time by resource: the host's, and the drive's stations. What is left over, none of them worked in.
  SimTime host_io = {};
  PerStation<SimTime> stations = {};
};

/// Concurrent operations per resource, by kind. 0: no limit, because the resource queues them itself.
using SlotTable = std::array<std::uint32_t, kResourceKinds>;

/// One operation at a time for processors and links, no limit for drives.
constexpr SlotTable default_slots() {
  SlotTable slots{};
  for (const ResourceKind kind :
       {ResourceKind::gpu, ResourceKind::host, ResourceKind::host_to_gpu, ResourceKind::gpu_to_host})
    slots[static_cast<std::size_t>(kind)] = 1;
  return slots;
}

struct ExecutorConfig {
  std::uint32_t window_steps = 2;  ///< maximum number of steps in progress
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
  Bytes moved = {};         ///< by a transfer, or from and to blocks or files
  bool ended_step = false;  ///< it is the last sample of its step
  SimTime waited = {};      ///< for its resource, since its dependencies were complete
};

/// A step ends when the last of its mini-batches has sampled. Operations that are still running are not part of it.
struct StepRecord {
  Phase phase = Phase::prefill;
  std::uint32_t step = 0;
  bool ended = false;
  SimTime end;
  PathBreakdown path;                   ///< critical path from the start of the phase to `end` (see Executor)
  std::vector<SimTime> layer_end;       ///< [layer] end of its last operation, K and V stored in the drives
  std::vector<SimTime> layer_computed;  ///< [layer] end of its last OpKind::finish_layer or feed_forward
};

struct ExecutionReport {
  SimTime start;
  SimTime end;                                ///< end of the last operation
  std::uint64_t operations = 0;               ///< completed operations
  std::array<SimTime, kOpKinds> kind_time{};  ///< sum over the operations of each kind
  std::map<Resource, SimTime> busy;           ///< time with at least one operation
  std::vector<StepRecord> steps;              ///< in the planner's order

  /// The contribution of step i to the critical path of its phase. Parts of one step may be negative where mini-batches
  /// overlap. They add up to the parts of the phase, and the total is the time since the previous step.
  PathBreakdown step_path(std::size_t i) const {
    return i == 0 || steps[i].phase != steps[i - 1].phase ? steps[i].path : steps[i].path - steps[i - 1].path;
  }
  SimTime step_time(std::size_t i) const { return step_path(i).total(); }
};

/// Operations start as soon as their dependencies are complete and their resource is free. ExecutorConfig::slots limits
/// the concurrent operations of a resource. Operations start in the order in which they became ready, at equal times in
/// the order of their ids.
///
/// The critical path is computed forward: each operation inherits the path of the event that released it (its last
/// dependency, or the operation whose end freed the resource or opened the window) and adds its own time. The result
/// equals that of walking back from the last operation, in bounded memory. The path of decode starts when the prefill
/// has produced the first tokens; time before that does not count.
///
///   Executor ex(*planner, backend, {});
///   ex.start(now);                                   // then, at every event:
///   ex.complete(id, now, split);                     // when a drive reports
///   ex.advance(now);                                 // completes and starts operations that are due
///   notify(ex.next_event());
class Executor {
 public:
  using Observer = std::function<void(const OperationRecord&)>;

  Executor(Planner& planner, OperationBackend& backend, const ExecutorConfig& config);

  void set_observer(Observer observer) { observer_ = std::move(observer); }

  /// Begins the run and starts the operations that are ready. Call it once.
  void start(SimTime now);
  /// Reports that an operation whose start() returned nothing ends at `at` >= now(). It takes effect in advance(at).
  /// Throws InternalError if the operation is not running, or if the split exceeds its duration.
  void complete(OperationId id, SimTime at, const DriveSplit& split = {});
  /// Time of the next known event; SimTime::max() while the executor waits for complete().
  SimTime next_event() const {
    return std::min(events_.empty() ? SimTime::max() : events_.top().first, wake_.value_or(SimTime::max()));
  }
  /// Processes all events up to and including `until`. Throws InternalError if time runs backwards, or if nothing is
  /// running although the plan is not finished.
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
    PathBreakdown path;  ///< path up to ready, then up to begin, then up to the end
  };
  struct ResourceState {
    std::uint32_t slots = 1;  ///< 0: unlimited
    std::uint32_t running = 0;
    std::set<std::pair<SimTime, OperationId>> queue;
    SimTime busy_since;
    PathBreakdown freed_path;  ///< path of the operation that ended last
  };
  struct Step {
    std::size_t record;  ///< index in report_.steps
    std::uint64_t operations;
    std::uint64_t unfinished;
    std::uint64_t unsampled;
  };

  Node& node(OperationId id) { return nodes_[id.value - base_]; }
  Step& step_of(OperationId id);
  bool may_ask() const;
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
  std::deque<Node> nodes_;  ///< operations of the steps in the window
  std::uint64_t base_ = 0;  ///< id of nodes_.front()
  std::deque<Step> steps_;
  std::map<Resource, ResourceState> resources_;
  using Event = std::pair<SimTime, OperationId>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  SimTime path_start_;         ///< start of the phase
  PathBreakdown window_path_;  ///< path of the operation that made room for the newest step
  std::uint64_t running_ = 0;
  bool started_ = false;
  bool exhausted_ = false;
  std::optional<SimTime> wake_;  ///< the planner waits until then
  SimTime now_;
  ExecutionReport report_;
};

}  // namespace csdsim::host
