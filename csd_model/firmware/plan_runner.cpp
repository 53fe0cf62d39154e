#include "csd_model/firmware/plan_runner.h"

#include <algorithm>
#include <set>
#include <utility>

namespace csdsim::csd_model {

using ftl::Phase;

namespace {

bool changes_flash(const std::vector<Phase>& phases) {
  return std::ranges::any_of(phases, [](const Phase& phase) {
    return std::ranges::any_of(phase, [](const PageOp& op) { return op.kind != PageOpKind::read; });
  });
}

}  // namespace

void PlanRunner::run(std::vector<Phase> phases, Done done) {
  if (!held_.empty() && changes_flash(phases)) release();
  begin(prepare(std::move(phases), std::move(done)));
}

void PlanRunner::hold(std::vector<Phase> phases, Done done) {
  held_.push_back(prepare(std::move(phases), std::move(done)));
}

void PlanRunner::release() {
  for (const RunPtr& run : std::exchange(held_, {})) begin(run);
}

PlanRunner::RunPtr PlanRunner::prepare(std::vector<Phase> phases, Done done) {
  for (const Phase& phase : phases)
    for (const PageOp& op : phase)
      if (op.kind == PageOpKind::program) ++programming_[op.ppa.value];
  const auto run = std::make_shared<Run>();
  run->phases = std::move(phases);
  run->done = std::move(done);
  return run;
}

void PlanRunner::begin(const RunPtr& run) {
  if (must_queue(run->phases)) queue(run);
  start_phase(run);
}

/// Plans of one phase on planes without a waiting plan go to the flash at once.
bool PlanRunner::must_queue(const std::vector<Phase>& phases) const {
  if (!changes_flash(phases)) return false;
  return phases.size() > 1 || (!lines_.empty() && std::ranges::any_of(phases.front(), [&](const PageOp& op) {
           return lines_.contains(plane_of(op));
         }));
}

void PlanRunner::queue(const RunPtr& run) {
  run->in_line = true;
  for (const Phase& phase : run->phases) {
    std::set<PlaneId> planes;
    for (const PageOp& op : phase) planes.insert(plane_of(op));
    for (const PlaneId plane : planes) ++run->visits[plane];
  }
  for (const auto& [plane, count] : run->visits) lines_[plane].push_back(run);
}

void PlanRunner::start_phase(const RunPtr& run) {
  if (run->phase == run->phases.size()) return run->done();
  const Phase& phase = run->phases[run->phase];
  Phase ready;
  std::set<PlaneId> planes;
  for (const PageOp& op : phase) {
    const PlaneId plane = plane_of(op);
    if (run->in_line && lines_.at(plane).front() != run) {
      run->waiting[plane].push_back(op);
    } else {
      ready.push_back(op);
      if (run->in_line) planes.insert(plane);
    }
  }
  run->parts = static_cast<std::uint32_t>(1 + run->waiting.size());
  submit(run, std::move(ready));
  for (const PlaneId plane : planes) visited(run, plane);
}

void PlanRunner::leave_out_buffered(Phase& ops) {
  if (programming_.empty()) return;
  buffer_hits_ += std::erase_if(
      ops, [this](const PageOp& op) { return op.kind == PageOpKind::read && programming_.contains(op.ppa.value); });
}

void PlanRunner::submit(const RunPtr& run, Phase ops) {
  leave_out_buffered(ops);
  if (ops.empty()) return part_done(run);
  std::vector<PhysicalPageAddress> programs;
  for (const PageOp& op : ops)
    if (op.kind == PageOpKind::program) programs.push_back(op.ppa);
  flash_.submit(ops, [this, run, programs = std::move(programs)] {
    for (const PhysicalPageAddress ppa : programs) {
      const auto entry = programming_.find(ppa.value);
      if (--entry->second == 0) programming_.erase(entry);
    }
    part_done(run);
  });
}

/// `run` has submitted the operations of one of its phases for `plane`. After its last one, the next plan follows.
void PlanRunner::visited(RunPtr run, PlaneId plane) {
  while (--run->visits.at(plane) == 0) {
    const auto line = lines_.find(plane);
    line->second.pop_front();
    if (line->second.empty()) {
      lines_.erase(line);
      return;
    }
    run = line->second.front();
    const auto waiting = run->waiting.find(plane);
    if (waiting == run->waiting.end()) return;
    Phase ops = std::move(waiting->second);
    run->waiting.erase(waiting);
    submit(run, std::move(ops));
  }
}

void PlanRunner::part_done(const RunPtr& run) {
  if (--run->parts > 0) return;
  ++run->phase;
  start_phase(run);
}

}  // namespace csdsim::csd_model
