// The units of the scheduler: kernels, scoring unit, argtopk.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "attention_engine/core/head_scheduler.h"
#include "base/rounding.h"

namespace csdsim::engine {

std::uint64_t HeadScheduler::faster(std::uint64_t cycles, double speed) {
  return speed == 1 ? cycles : static_cast<std::uint64_t>(std::llround(static_cast<double>(cycles) / speed));
}

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
    return {std::min<std::uint64_t>(j.job->sparf.r, d) * tokens * group, tokens * group};
  switch (j.method) {
    case Method::dense:
      return {2 * tokens * d * group, tokens * group};
    case Method::sparf:
      return {2 * k * d * group, k * group};
    case Method::score:
      break;
  }
  return {tokens * d * group, 0};
}

/// Cycles of the current phase of job `j`; notes which part of them is softmax.
std::uint64_t HeadScheduler::phase_cycles(Job& j) const {
  const KernelWork work = kernel_work(j);
  const std::optional<std::uint32_t> lanes = scoring_lanes(j);
  const std::uint64_t products = faster(ceil_div(work.macs, lanes.value_or(config_.macs_per_cycle)),
                                        lanes ? config_.speeds.scoring : config_.speeds.products);
  const std::uint64_t softmax =
      faster(ceil_div(work.softmax_elements, config_.softmax_per_cycle), config_.speeds.softmax);
  const std::uint64_t cycles = products + softmax;
  j.softmax_share = cycles == 0 ? 0 : static_cast<double>(softmax) / static_cast<double>(cycles);
  return cycles;
}

/// Starts the next piece on a kernel, unless the job is on a kernel already, the piece has not arrived or it is flash's
/// turn.
void HeadScheduler::run_kernel(JobId id, SimTime at) {
  Job& j = jobs_[id.value];
  if (j.stage == Stage::feed_forward) return run_neurons(id, at);
  if (!intakes_[id.value].ready() || j.awaits_turn) return;
  j.awaits_turn = !turns_.start_work({id});
  if (j.awaits_turn) return;
  const SimTime duration = cycles_time(intakes_[id.value].begin(), config_.clock);
  begin_unit(unit_of(j), id, duration, SimTime{std::llround(double(duration.ps) * j.softmax_share)}, j.has_pages, at);
}

/// The unit that the current stage of a job runs on.
EngineUnit HeadScheduler::unit_of(const Job& job) const {
  if (job.stage == Stage::select_components || job.stage == Stage::select_tokens) return EngineUnit::argtopk;
  return job.job != nullptr && scoring_lanes(job) ? EngineUnit::scoring : EngineUnit::kernels;
}

/// Gives a unit work whose end is an event of job `id`.
void HeadScheduler::begin_unit(EngineUnit unit, JobId id, SimTime work, SimTime softmax, bool page, SimTime at) {
  struct Use {
    Servers& servers;
    SimTime& busy;
    DurationSum& waited;
  };
  const Use use = unit == EngineUnit::kernels   ? Use{kernels_, stats_.kernel_busy, stats_.kernel_waited}
                  : unit == EngineUnit::scoring ? Use{scoring_, stats_.scoring_busy, stats_.scoring_waited}
                                                : Use{argtopk_, stats_.argtopk_busy, stats_.argtopk_waited};
  use.busy += work;
  stats_.softmax_busy += softmax;
  if (observer_ != nullptr) observer_->unit_begins(unit, work, softmax, page, at);
  const SimTime end = use.servers.serve(at, work, use.waited);
  events_.push({end, next_order_++, id});
  if (work_observer_ == nullptr) return;
  const Job& job = jobs_[id.value];
  constexpr std::array<std::string_view, 7> kWork{
      "select components", "logit-0", "logit-0", "select tokens", "attend", "attend", "feed-forward"};
  const bool scores = job.job != nullptr && job.method == Method::score;
  work_observer_->work(static_cast<std::uint32_t>(unit), scores ? "score" : kWork[static_cast<std::size_t>(job.stage)],
                       end - work, end, id.value);
}

void HeadScheduler::run_argtopk(JobId id, std::uint64_t elements, SimTime at) {
  if (!turns_.start_work({id, elements})) return;
  const std::uint64_t cycles = faster(ceil_div(elements, config_.argtopk_per_cycle), config_.speeds.argtopk);
  stats_.argtopk_elements += elements;
  begin_unit(EngineUnit::argtopk, id, cycles_time(cycles, config_.clock), {}, false, at);
}

}  // namespace csdsim::engine
