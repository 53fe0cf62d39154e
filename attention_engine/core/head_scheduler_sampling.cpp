// Commands of the scheduler that pass over some of their jobs, see HeadSampler.
#include <algorithm>
#include <utility>

#include "attention_engine/core/head_scheduler.h"

namespace csdsim::engine {

/// True if all jobs do the same to heads of the same shape.
bool HeadScheduler::alike(std::span<const HeadJob> jobs) const {
  const HeadJob& first = jobs.front();
  const KvHeadView view = source_.view(first.key);
  return std::ranges::all_of(jobs, [&](const HeadJob& job) {
    return job.method == first.method && job.group == first.group && job.sparf == first.sparf &&
           job.score == first.score && source_.view(job.key) == view;
  });
}

/// A job of a sampled command has ended.
void HeadScheduler::sample(TaskId id, SimTime at) {
  Task& owner = task(id);
  const std::optional<PassedOver> passed = sampler_->job_ended(id, owner.count(), owner.started, owner.done, at);
  if (!passed) return;
  owner.started += passed->jobs;
  owner.finished += passed->jobs;
  postpone(passed->time, at);
  sampler_->pass_over(*passed);
}

/// Everything that goes on at `now` stands still and goes on later.
void HeadScheduler::postpone(SimTime by, SimTime now) {
  events_.postpone(by);
  for (Servers* const servers : {&kernels_, &argtopk_, &scoring_}) servers->postpone(by, now);
  for (Job& job : jobs_)
    if (job.running()) job.since += by;
  for (Task& waiting : tasks_) waiting.submitted += by;
  issue_.postpone(by);
}

}  // namespace csdsim::engine
