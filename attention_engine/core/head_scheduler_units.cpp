// The units of the scheduler: kernels, scoring unit, argtopk.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "attention_engine/core/head_scheduler.h"
#include "base/error.h"
#include "base/rounding.h"

namespace csdsim::engine {

SimTime HeadScheduler::Servers::serve(SimTime at, SimTime duration, DurationSum& waited) {
  SimTime& free_at = *std::min_element(free_at_.begin(), free_at_.end());
  if (free_at > at) waited += free_at - at;
  return free_at = std::max(free_at, at) + duration;
}

/// Products per cycle of the scoring unit if job `j` runs on it.
std::optional<std::uint32_t> HeadScheduler::scoring_lanes(const Job& j) const {
  if (j.method != Method::score) return std::nullopt;
  return config_.scoring.lanes(j.job->score.precision);
}

/// The kernel work of the current phase of job `j`.
HeadScheduler::KernelWork HeadScheduler::kernel_work(const Job& j) const {
  const std::uint64_t group = j.job->group, tokens = token_range(*j.job, j.view).count(), d = j.view.head_dim;
  const std::uint64_t k = j.job->sparf.k;
  if (j.stage == Stage::read_a || j.stage == Stage::logit0)
    return {std::min<std::uint64_t>(j.job->sparf.r, d) * tokens * group, tokens * group,
            std::min<std::uint64_t>(j.job->sparf.r, d) * tokens};
  switch (j.method) {
    case Method::dense:
      return {2 * tokens * d * group, tokens * group, 2 * tokens * d};
    case Method::sparf:
      return {2 * k * d * group, k * group, 2 * k * d};
    case Method::score:
      break;
  }
  return {tokens * d * group, 0, tokens * d};
}

void HeadScheduler::count_macs(Job& j) {
  const std::uint64_t macs = kernel_work(j).macs;
  stats_.macs += macs;
  j.macs += macs;
}

/// Cycles of the current phase of job `j`; notes which part of them is softmax.
std::uint64_t HeadScheduler::phase_cycles(Job& j) const {
  const KernelWork work = kernel_work(j);
  const std::optional<std::uint32_t> lanes = scoring_lanes(j);
  const std::uint64_t products = UnitSpeeds::faster(ceil_div(work.macs, lanes.value_or(config_.macs_per_cycle)),
                                                    lanes ? config_.speeds.scoring : config_.speeds.products);
  const std::uint64_t softmax =
      UnitSpeeds::faster(ceil_div(work.softmax_elements, config_.softmax_per_cycle), config_.speeds.softmax);
  std::uint64_t cycles = products + softmax;
  if (j.view.quantised()) cycles = std::max(cycles, ceil_div(work.taken_in, config_.dequantised_per_cycle));
  j.softmax_share = cycles == 0 ? 0 : static_cast<double>(softmax) / static_cast<double>(cycles);
  j.costs = {};
  return cycles;
}

/// Starts the next piece on a kernel, unless the job is on a kernel already, the piece has not arrived or it is flash's
/// turn.
void HeadScheduler::run_kernel(JobId id, SimTime at) {
  Job& j = jobs_[id.value];
  if (j.stage == Stage::feed_forward) return run_neurons(id, at);
  if (!intakes_[id.value].ready() || j.awaits_turn) return;
  j.awaits_turn = !turns_.overlap() && !turns_.start_work({id});
  if (j.awaits_turn) return;
  const std::uint64_t cycles = intakes_[id.value].begin();
  PieceCost& cost = j.costs[cycles & 1];
  if (cost.cycles != cycles) cost = cost_of(cycles, j.softmax_share);
  begin_unit(id, {j.unit, cycles, cost.time, cost.softmax, j.has_pages}, at);
}

HeadScheduler::PieceCost HeadScheduler::cost_of(std::uint64_t cycles, double softmax_share) const {
  const SimTime time = cycles_time(cycles, config_.clock);
  return {cycles, time, SimTime{std::llround(double(time.ps) * softmax_share)}};
}

/// The unit that the current stage of a job runs on.
EngineUnit HeadScheduler::unit_of(const Job& job) const {
  if (job.stage == Stage::select_components || job.stage == Stage::select_tokens) return EngineUnit::argtopk;
  return job.job != nullptr && scoring_lanes(job) ? EngineUnit::scoring : EngineUnit::kernels;
}

UnitTask HeadScheduler::task_of(const Job& job) {
  switch (job.stage) {
    case Stage::select_components:
      return UnitTask::components;
    case Stage::select_tokens:
      return UnitTask::tokens;
    case Stage::read_a:
    case Stage::logit0:
      return UnitTask::logit0;
    case Stage::read_b:
    case Stage::attend:
      return job.method == Method::score ? UnitTask::score : UnitTask::attend;
    case Stage::feed_forward:
      break;
  }
  return UnitTask::feed_forward;
}

HeadScheduler::Servers& HeadScheduler::servers_of(EngineUnit unit) {
  return unit == EngineUnit::kernels ? kernels_ : unit == EngineUnit::scoring ? scoring_ : argtopk_;
}

HeadScheduler::UnitCounters HeadScheduler::counters_of(EngineUnit unit) {
  return unit == EngineUnit::kernels   ? UnitCounters{stats_.kernel_busy, stats_.kernel_waited}
         : unit == EngineUnit::scoring ? UnitCounters{stats_.scoring_busy, stats_.scoring_waited}
                                       : UnitCounters{stats_.argtopk_busy, stats_.argtopk_waited};
}

/// Gives a unit work whose end is an event of job `id`.
void HeadScheduler::begin_unit(JobId id, const UnitWork& work, SimTime at) {
  const UnitCounters counters = counters_of(work.unit);
  counters.busy += work.time;
  stats_.softmax_busy += work.softmax;
  if (observer_ != nullptr) observer_->unit_begins(work.unit, work.time, work.softmax, work.page, at);
  const std::uint64_t order = next_order_++;
  if (units_ == nullptr) {
    const SimTime end = servers_of(work.unit).serve(at, work.time, counters.waited);
    events_.insert({end, order, id});
    if (work_observer_ != nullptr) tell(work.unit, id, end - work.time, end);
    return;
  }
  in_units_[order] = {id, work.unit, work.time};
  units_->begin({work.unit, task_of(jobs_[id.value]), order, work.amount, work.time}, at);
}

void HeadScheduler::unit_done(std::uint64_t id, SimTime waited, SimTime worked, SimTime at) {
  const auto found = in_units_.find(id);
  if (found == in_units_.end()) throw InternalError("a unit of the engine ended work that it had not been given");
  const InUnit work = found->second;
  in_units_.erase(found);
  const UnitCounters counters = counters_of(work.unit);
  counters.busy += worked - work.time;  // begin_unit() has counted what a unit of the model takes
  counters.waited += waited;
  events_.insert({at, id, work.job});
  if (work_observer_ != nullptr) tell(work.unit, work.job, at - worked, at);
}

void HeadScheduler::tell(EngineUnit unit, JobId id, SimTime start, SimTime end) const {
  constexpr std::array<std::string_view, 7> kTasks{"",      "select components", "select tokens", "logit-0", "attend",
                                                   "score", "feed-forward"};
  work_observer_->work(static_cast<std::uint32_t>(unit), kTasks[static_cast<std::size_t>(task_of(jobs_[id.value]))],
                       start, end, id.value);
}

void HeadScheduler::run_argtopk(JobId id, std::uint64_t elements, SimTime at) {
  if (!turns_.start_work({id, elements})) return;
  stats_.argtopk_elements += elements;
  begin_unit(id, {EngineUnit::argtopk, elements, config_.argtopk_time(elements), {}}, at);
}

}  // namespace csdsim::engine
