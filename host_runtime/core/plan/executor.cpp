#include "host_runtime/core/plan/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

namespace {

/// The path part of an operation's link time, given by its payload. Commands of a KV namespace carry only KV.
PathPart link_part(const Operation& op) {
  LinkPayload payload = LinkPayload::activations;
  if (const auto* link = std::get_if<LinkWork>(&op.work)) payload = link->payload;
  if (const auto* blocks = std::get_if<BlockWork>(&op.work)) payload = blocks->payload;
  if (const auto* file = std::get_if<FileWork>(&op.work)) payload = file->payload;
  if (op.resource.kind == ResourceKind::drive_kv) payload = LinkPayload::kv;
  return payload == LinkPayload::kv ? PathPart::kv_link : PathPart::other_link;
}

}  // namespace

Executor::Executor(Planner& planner, OperationBackend& backend, const ExecutorConfig& config)
    : planner_(planner), backend_(backend), config_(config) {
  if (config.window_steps == 0) throw UserError("executor: window_steps is 0, must be at least 1");
}

void Executor::start(SimTime now) {
  if (started_) throw InternalError("executor started twice");
  started_ = true;
  now_ = now;
  report_.start = report_.end = path_start_ = now;
  backend_.place(planner_.resident());
  fill_window();
  dispatch();
}

void Executor::complete(OperationId id, SimTime at, const DriveSplit& split) {
  if (id.value < base_ || id.value >= base_ + nodes_.size() || node(id).state != State::running)
    throw InternalError(fmt::format("operation {} reported complete, but it is not running", id.value));
  Node& n = node(id);
  const SimTime accounted =
      split.gpu + std::max(split.host + split.link + split.flash + split.engine, split.host_io + split.stations.sum());
  if (at < now_ || at - n.begin < accounted)
    throw InternalError(fmt::format("{}: completion at {} ps, after {} ps of which {} are accounted for",
                                    operation_name(n.op.kind, n.op.tag), at.ps, (at - n.begin).ps, accounted.ps));
  n.split = split;
  n.state = State::ending;
  events_.emplace(at, id);
}

void Executor::advance(SimTime until) {
  if (!started_ || until < now_) throw InternalError("executor: time runs backwards");
  while (next_event() <= until) {
    now_ = next_event();
    // Finish all operations that end now before any starts, so that the order of starts does not depend on the order of
    // reports.
    if (wake_ && *wake_ <= now_) wake_.reset();
    while (!events_.empty() && events_.top().first == now_) {
      Node& n = node(events_.top().second);
      events_.pop();
      finish(n);
    }
    while (!steps_.empty() && steps_.front().unfinished == 0) {
      const std::uint64_t gone = steps_.front().operations;
      nodes_.erase(nodes_.begin(), nodes_.begin() + static_cast<std::ptrdiff_t>(gone));
      base_ += gone;
      steps_.pop_front();
    }
    fill_window();
    dispatch();
  }
  now_ = until;
  if (running_ == 0 && !finished() && !wake_)
    throw InternalError("executor: nothing runs, but the plan is not finished");
}

Executor::Step& Executor::step_of(OperationId id) {
  std::uint64_t first = base_;
  for (Step& s : steps_) {
    if (id.value < first + s.operations) return s;
    first += s.operations;
  }
  throw InternalError(fmt::format("operation {} is in no step", id.value));
}

/// True if the window has room, and the planner knows what the next step depends on.
bool Executor::may_ask() const {
  if (exhausted_ || wake_ || steps_.size() >= config_.window_steps) return false;
  return steps_.empty() || steps_.back().unsampled == 0 || !planner_.decides_late();
}

void Executor::fill_window() {
  while (may_ask()) {
    sink_.set_now(now_);
    exhausted_ = !planner_.next_step(sink_);
    wake_ = sink_.take_wait();
    if (wake_ && !sink_.operations().empty()) throw InternalError("planner waits, but emitted operations");
    if (!exhausted_ && !wake_) admit(sink_.take());
  }
}

void Executor::admit(std::vector<Operation> operations) {
  if (operations.empty()) throw InternalError("planner emitted a step without operations");
  const OpTag& tag = operations.front().tag;
  steps_.push_back({report_.steps.size(), operations.size(), operations.size(), 0});
  report_.steps.push_back({.phase = tag.phase,
                           .step = tag.step,
                           .ended = false,
                           .end = {},
                           .path = {},
                           .layer_end = {},
                           .layer_computed = {}});
  const OperationId first = operations.front().id;
  for (Operation& op : operations) {
    if (op.kind == OpKind::sample) ++steps_.back().unsampled;
    Node n;
    n.path = window_path_;
    for (const OperationId dep : op.deps)
      if (dep.value >= base_ && node(dep).state != State::done) {
        ++n.unmet;
        node(dep).dependents.push_back(op.id);
      }
    n.op = std::move(op);
    nodes_.push_back(std::move(n));
  }
  for (std::uint64_t id = first.value; id < base_ + nodes_.size(); ++id)
    if (node(OperationId{id}).unmet == 0) make_ready(node(OperationId{id}));
}

void Executor::make_ready(Node& n) {
  n.state = State::ready;
  n.ready = now_;
  auto [it, added] = resources_.try_emplace(n.op.resource);
  if (added) it->second.slots = config_.slots[static_cast<std::size_t>(n.op.resource.kind)];
  it->second.queue.emplace(now_, n.op.id);
}

void Executor::dispatch() {
  for (auto& [resource, r] : resources_)
    while (!r.queue.empty() && (r.slots == 0 || r.running < r.slots)) {
      Node& n = node(r.queue.begin()->second);
      r.queue.erase(r.queue.begin());
      begin(n, r);
    }
}

void Executor::begin(Node& n, ResourceState& r) {
  if (n.ready < now_) n.path = r.freed_path;  // it waited for the resource, not for its dependencies
  n.begin = now_;
  if (r.running++ == 0) r.busy_since = now_;
  ++running_;
  planner_.started(n.op, now_);
  const std::optional<SimTime> duration = backend_.start(n.op, now_);
  if (!duration) {
    n.state = State::running;
    return;
  }
  if (*duration < SimTime{})
    throw InternalError(fmt::format("{}: negative duration", operation_name(n.op.kind, n.op.tag)));
  n.state = State::modelled;
  events_.emplace(now_ + *duration, n.op.id);
}

void Executor::charge(Node& n) const {
  const bool in_layer = n.op.tag.layer.has_value();
  const SimTime counted_time = now_ - std::max(n.begin, path_start_);
  SimTime rest = counted_time;
  const SimTime whole = now_ - n.begin;
  const auto counted = [&](SimTime part) {  // scales down the parts of an operation that began before the phase
    if (whole == SimTime{}) return SimTime{};
    return SimTime{static_cast<std::int64_t>(static_cast<__int128>(part.ps) * counted_time.ps / whole.ps)};
  };
  PathPart part = PathPart::gpu;
  switch (n.op.resource.kind) {
    case ResourceKind::gpu:
      break;
    case ResourceKind::host:
      part = PathPart::host;
      break;
    case ResourceKind::host_to_gpu:
    case ResourceKind::gpu_to_host:
    case ResourceKind::file:  // all of it moves data: the host's threads, the drive and its link
      part = link_part(n.op);
      break;
    case ResourceKind::drive_kv:
    case ResourceKind::drive_blocks:
      for (const auto& [drive_part, time] : {std::pair{PathPart::host, n.split.host},
                                             {link_part(n.op), n.split.link},
                                             {PathPart::flash, n.split.flash},
                                             {PathPart::engine, n.split.engine},
                                             {PathPart::gpu, n.split.gpu}}) {
        n.path.add(drive_part, in_layer, counted(time));
        rest -= counted(time);
      }
      part = PathPart::drive_other;
      break;
  }
  n.path.add(part, in_layer, rest);

  SimTime other = counted_time;
  const auto add = [&](PathResource resource, SimTime time) {
    n.path.add(resource, in_layer, counted(time));
    other -= counted(time);
  };
  add(PathResource::host_io(), n.split.host_io);
  add(PathResource::of(ResourceKind::gpu), n.split.gpu);
  for (std::size_t i = 0; i < kDriveStations; ++i)
    add(PathResource::of(static_cast<DriveStation>(i)), n.split.stations.values[i]);
  n.path.add(PathResource::of(n.op.resource.kind), in_layer, other);
}

/// Starts a new phase: resets all paths, so that earlier time does not count.
void Executor::restart_path() {
  path_start_ = now_;
  for (Node& n : nodes_) n.path = {};
  for (auto& [resource, r] : resources_) r.freed_path = {};
  window_path_ = {};
}

void Executor::finish(Node& n) {
  charge(n);
  n.state = State::done;
  --running_;
  ResourceState& r = resources_.at(n.op.resource);
  r.freed_path = n.path;
  if (--r.running == 0) report_.busy[n.op.resource] += now_ - r.busy_since;

  ++report_.operations;
  report_.kind_time[static_cast<std::size_t>(n.op.kind)] += now_ - n.begin;
  report_.end = now_;
  window_path_ = n.path;
  for (const OperationId id : n.dependents) {
    Node& dependent = node(id);
    dependent.path = n.path;
    if (--dependent.unmet == 0) make_ready(dependent);
  }

  Step& step = step_of(n.op.id);
  StepRecord& record = report_.steps[step.record];
  --step.unfinished;
  const bool ended_step = n.op.kind == OpKind::sample && --step.unsampled == 0;
  if (ended_step) {
    record.ended = true;
    record.end = now_;
    record.path = n.path;
    if (record.phase == Phase::prefill) restart_path();
  }
  if (n.op.tag.layer) {
    const std::size_t layer = n.op.tag.layer->value;
    if (record.layer_end.size() <= layer) {
      record.layer_end.resize(layer + 1);
      record.layer_computed.resize(layer + 1);
    }
    record.layer_end[layer] = now_;
    if (n.op.kind == OpKind::finish_layer || n.op.kind == OpKind::feed_forward) record.layer_computed[layer] = now_;
  }
  const Bytes moved = backend_.moved(n.op);
  backend_.end(n.op);
  planner_.ended(n.op, now_);
  if (observer_)
    observer_({n.op.id, n.op.kind, n.op.resource, n.op.tag, n.begin, now_, moved, ended_step, n.begin - n.ready});
}

}  // namespace csdsim::host
