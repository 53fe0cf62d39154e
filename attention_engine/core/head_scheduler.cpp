#include "attention_engine/core/head_scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"

namespace csdsim::engine {

Bytes job_footprint(const HeadJob& job, const KvHeadView& view) {
  const std::uint64_t group = job.group, tokens = token_range(job, view).count(), d = view.head_dim, k = job.sparf.k;
  switch (effective_method(job, view.tokens)) {
    case Method::dense:
      return {4 * group * std::min(tokens, std::uint64_t{kOnlineGroups} * view.tokens_per_page) + 8 * group * d};
    case Method::sparf:
      return {4 * group * tokens + 4 * group * k + 8 * group * d};
    case Method::score:
      break;
  }
  return {4 * tokens + 4 * group * d};
}

HeadScheduler::HeadScheduler(const EngineConfig& config, KvSource& source, HeadWork& work, EnginePort& port)
    : config_(config),
      source_(source),
      work_(work),
      port_(port),
      intakes_(config.jobs_in_flight),
      arrivals_(config.jobs_in_flight),
      neuron_intakes_(config.jobs_in_flight),
      by_arrival_(config.by_arrival()),
      pages_per_channel_(config.geometry.pages_per_plane() * config.geometry.planes_per_channel()),
      issue_(config.page_buffers, config.geometry, config.jobs_in_flight),
      arrived_on_(config.geometry.channels),
      turns_(config.overlap_flash),
      kernels_(config.kernels),
      argtopk_(config.argtopk_units) {
  config_.validate();
  jobs_.resize(config_.jobs_in_flight);
  for (std::uint32_t i = config_.jobs_in_flight; i > 0; --i) free_.push_back(JobId{i - 1});
}

void HeadScheduler::check(const HeadJob& job, const KvHeadView& view) const {
  if (job.group == 0) throw UserError("a head job has no query head (group is 0)");
  if (job.method == Method::sparf && (job.sparf.r == 0 || job.sparf.k == 0)) {
    throw UserError(fmt::format("SparF needs r and k of at least 1, got r = {}, k = {}", job.sparf.r, job.sparf.k));
  }
  if (job.method == Method::score) {
    config_.require(job.score.precision);
    if (job.score.first >= job.score.end || job.score.end > view.tokens)
      throw UserError(fmt::format("a score job over tokens {} to {}: it needs at least one, and the head has {}",
                                  job.score.first, job.score.end, view.tokens));
  }
  const Bytes footprint = job_footprint(job, view);
  if (footprint > config_.buffer) {
    throw UserError(fmt::format("a head job over {} tokens needs {} B of the engine's buffer, engine.buffer is {} B",
                                view.tokens, footprint.value, config_.buffer.value));
  }
}

void HeadScheduler::forget(SimTime now) {
  for (const EngineUnit unit : {EngineUnit::kernels, EngineUnit::scoring, EngineUnit::argtopk})
    counters_of(unit).busy -= work_ahead(unit, now);
  HeadScheduler fresh(config_, source_, work_, port_);
  tasks_.clear();
  first_task_ = next_start_ = 0;
  jobs_ = std::move(fresh.jobs_);
  intakes_ = std::move(fresh.intakes_);
  arrivals_ = std::move(fresh.arrivals_);
  neuron_intakes_ = std::move(fresh.neuron_intakes_);
  free_ = std::move(fresh.free_);
  issue_ = std::move(fresh.issue_);
  arrived_on_ = std::move(fresh.arrived_on_);
  turns_ = std::move(fresh.turns_);
  kernels_ = std::move(fresh.kernels_);
  argtopk_ = std::move(fresh.argtopk_);
  scoring_ = std::move(fresh.scoring_);
  events_.clear();
  buffer_in_use_ = {};
  tell_buffer(now);
}

TaskId HeadScheduler::submit(std::span<const HeadJob> jobs, SimTime at) {
  if (jobs.empty()) throw UserError("an attention command without a head job");
  for (const HeadJob& job : jobs) check(job, source_.view(job.key));
  advance(at);
  const TaskId id{first_task_ + tasks_.size()};
  tasks_.push_back({.jobs = jobs, .submitted = at});
  tasks_.back().sampled = sampler_ != nullptr && sampler_->worthwhile(jobs.size()) && alike(jobs);
  start_jobs(at);
  return id;
}

void HeadScheduler::pages_arrived(PageRead read, SimTime at) {
  advance(at);
  if (!expects(read)) throw InternalError("pages arrived for a job that has not asked for them");
  const JobId id = read.job;
  if (!turns_.overlap()) work_in_turn(at);
  if (jobs_[id.value].stage == Stage::feed_forward) return record_page_arrived(read, at);
  if (by_arrival_ && config_.page_buffers > 0)
    stats_.peak_page_buffers = std::max<std::uint64_t>(stats_.peak_page_buffers, ++arrived_on(read));
  PhaseIntake& intake = intakes_[id.value];
  intake.arrive(read.piece);
  if (intake.complete()) {
    leave_stage(id, at);
  } else if (intake.ready()) {
    run_kernel(id, at);
  }
}

/// A read has ended: starts the work that has waited for the engine's turn, if that begins now.
void HeadScheduler::work_in_turn(SimTime at) {
  for (const EngineTurns::Work& work : turns_.end_read()) {
    jobs_[work.job.value].awaits_turn = false;
    if (work.argtopk_elements > 0) {
      run_argtopk(work.job, work.argtopk_elements, at);
    } else {
      run_kernel(work.job, at);
    }
  }
}

/// Work has ended: asks for the pages that have waited for flash's turn, if that begins now.
void HeadScheduler::read_in_turn(SimTime at) {
  for (const EngineTurns::Read& r : turns_.end_work()) port_.read_pages(r.read, r.ops, r.lookups, at);
}

void HeadScheduler::advance(SimTime at) {
  while (events_.front_time() <= at) {
    const Event event = events_.front();
    events_.pop();
    const Job& job = jobs_[event.id.value];
    const Stage stage = job.stage;
    if (observer_ != nullptr) observer_->unit_ends(job.unit, event.at);
    if (stage == Stage::select_components || stage == Stage::select_tokens) {
      leave_stage(event.id, event.at);
    } else if (stage == Stage::feed_forward) {
      neuron_done(event.id, event.at);
    } else {
      piece_done(event.id, event.at);
    }
    if (!turns_.overlap()) read_in_turn(event.at);
  }
}

void HeadScheduler::start_jobs(SimTime at) {
  while (!free_.empty() && next_start_ < first_task_ + tasks_.size() && start_next(at)) {
  }
}

bool HeadScheduler::start_next(SimTime at) {
  const TaskId task_id{next_start_};
  Task& owner = task(task_id);
  const HeadJob* const job = owner.neurons != nullptr ? nullptr : &owner.jobs[owner.started];
  const KvHeadView view = job != nullptr ? source_.view(job->key) : KvHeadView{};
  const Bytes footprint = job != nullptr ? job_footprint(*job, view) : job_footprint(*owner.neurons);
  if (buffer_in_use_ + footprint > config_.buffer) {
    if (jobs_running() == 0) throw InternalError("the cache of a head grew while attention on it was waiting");
    return false;
  }
  buffer_in_use_ += footprint;
  stats_.peak_buffer = std::max(stats_.peak_buffer, buffer_in_use_);
  tell_buffer(at);
  if (++owner.started == owner.count()) ++next_start_;
  stats_.phase_time[static_cast<std::size_t>(JobPhase::wait)] += at - owner.submitted;

  const JobId id = free_.back();
  free_.pop_back();
  Job& j = jobs_[id.value];
  j = {.job = job, .neurons = owner.neurons, .task = task_id, .since = at, .view = view, .footprint = footprint};
  if (job == nullptr) {
    enter(id, Stage::feed_forward, at);
    return true;
  }
  const Method method = j.method = effective_method(*job, view.tokens);
  enter(id, method == Method::sparf ? Stage::select_components : Stage::read_b, at);
  return true;
}

void HeadScheduler::enter(JobId id, Stage stage, SimTime at) {
  Job& j = jobs_[id.value];
  j.stage = stage;
  j.unit = unit_of(j);
  j.since = at;
  switch (stage) {
    case Stage::select_components:
      return run_argtopk(id, j.view.head_dim, at);
    case Stage::read_a:
      return read_phase_a(id, at);
    case Stage::logit0:
      work_.score_tokens(id, *j.job);
      count_macs(j);
      return run_kernel(id, at);
    case Stage::select_tokens:
      return run_argtopk(id, j.view.tokens, at);
    case Stage::read_b:
      return read_phase_b(id, at);
    case Stage::attend:
      work_.attend(id, *j.job, j.method);
      count_macs(j);
      return run_kernel(id, at);
    case Stage::feed_forward:
      return start_neurons(id, at);
  }
}

void HeadScheduler::leave_stage(JobId id, SimTime at) {
  const auto leave = [&](JobPhase phase) {
    stats_.phase_time[static_cast<std::size_t>(phase)] += at - jobs_[id.value].since;
  };
  switch (jobs_[id.value].stage) {
    case Stage::select_components:
      leave(JobPhase::argtopk);
      return enter(id, Stage::read_a, at);
    case Stage::read_a:
      leave(JobPhase::phase_a);
      return enter(id, Stage::logit0, at);
    case Stage::logit0:
      leave(JobPhase::logit0);
      return enter(id, Stage::select_tokens, at);
    case Stage::select_tokens:
      leave(JobPhase::argtopk);
      return enter(id, Stage::read_b, at);
    case Stage::read_b:
      leave(JobPhase::phase_b);
      return enter(id, Stage::attend, at);
    case Stage::attend:
      leave(JobPhase::attend);
      return finish(id, at);
    case Stage::feed_forward:
      break;  // neuron_done() ends these
  }
  throw InternalError("a feed-forward job has only one stage");
}

void HeadScheduler::piece_done(JobId id, SimTime at) {
  PhaseIntake& intake = intakes_[id.value];
  const PageRead read{id, static_cast<std::uint32_t>(intake.end())};
  if (jobs_[id.value].has_pages) pages_consumed(read, at);
  if (intake.over()) {
    leave_stage(id, at);
  } else if (intake.ready()) {
    run_kernel(id, at);
  }
}

/// A kernel is through with these pages: their buffers are free for others.
void HeadScheduler::pages_consumed(PageRead read, SimTime at) {
  port_.pages_consumed(read, at);
  if (by_arrival_ && jobs_[read.job.value].job != nullptr) return follow(read, at);
  if (config_.page_buffers == 0) return;
  issue_.consumed(read, at, stats_.buffer_waited,
                  [&](PageRead next, const PageOp& op, std::uint64_t lookups) { issue(next, op, lookups, at); });
}

void HeadScheduler::finish(JobId id, SimTime at) {
  Job& j = jobs_[id.value];
  const Bytes before = stats_.engine_bytes;
  stats_.engine_bytes += j.unwanted;
  const std::uint64_t tokens = token_range(*j.job, j.view).count();
  switch (j.method) {
    case Method::dense:
      ++stats_.dense_jobs;
      stats_.engine_bytes += {2 * tokens * j.view.row()};
      break;
    case Method::sparf: {
      ++stats_.sparf_jobs;
      stats_.engine_bytes += {component_bytes(j, tokens) + 2 * std::uint64_t{j.job->sparf.k} * j.view.row()};
      break;
    }
    case Method::score:
      ++stats_.score_jobs;
      stats_.engine_bytes += {tokens * j.view.row()};
      break;
  }
  HeadJobsDone& done = task(j.task).done;
  ++done.jobs;
  done.pages += j.pages;
  done.pages_squared += double(j.pages) * double(j.pages);
  done.macs += j.macs;
  done.engine_bytes += stats_.engine_bytes - before;
  end_job(id, at);
}

void HeadScheduler::tell_buffer(SimTime at) const {
  if (work_observer_ != nullptr) work_observer_->level(0, buffer_in_use_.value, at);
}

void HeadScheduler::end_job(JobId id, SimTime at) {
  Job& j = jobs_[id.value];
  buffer_in_use_ -= j.footprint;
  tell_buffer(at);
  j.job = nullptr;
  j.neurons = nullptr;
  free_.push_back(id);
  const TaskId task_id = j.task;
  Task& owner = task(task_id);
  const bool over = ++owner.finished == owner.count(), samples = owner.sampled && !over;
  if (over) {
    ++stats_.tasks;
    port_.task_done(task_id, at);
    while (!tasks_.empty() && tasks_.front().finished == tasks_.front().count()) {
      tasks_.pop_front();
      ++first_task_;
    }
  }
  start_jobs(at);
  if (samples) sample(task_id, at);
}

}  // namespace csdsim::engine
