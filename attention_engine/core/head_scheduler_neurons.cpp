// Feed-forward jobs of the scheduler.
#include <fmt/format.h>

#include <algorithm>

#include "attention_engine/core/head_scheduler.h"
#include "base/error.h"
#include "base/rounding.h"

namespace csdsim::engine {

TaskId HeadScheduler::submit_neurons(const NeuronJob& job, SimTime at) {
  if (job.neurons == 0 || job.shape.tokens == 0 || job.shape.width == 0 || job.source == nullptr)
    throw UserError(
        "a feed-forward job needs at least one neuron, one token, one column and the source of its records");
  if (const Bytes footprint = job_footprint(job); footprint > config_.buffer)
    throw UserError(
        fmt::format("a feed-forward job of {} tokens with {} columns needs {} B of the engine's buffer, engine.buffer "
                    "is {} B",
                    job.shape.tokens, job.shape.width, footprint.value, config_.buffer.value));
  advance(at);
  const TaskId id{first_task_ + tasks_.size()};
  tasks_.push_back({.jobs = {}, .neurons = &job, .submitted = at});
  start_jobs(at);
  return id;
}

void HeadScheduler::start_neurons(JobId id, SimTime at) {
  const NeuronJob& job = *jobs_[id.value].neurons;
  NeuronIntake& intake = neuron_intakes_[id.value];
  intake.reads.clear();
  job.source->plan_records(job, intake.reads);
  if (intake.reads.needed.size() != job.neurons) throw InternalError("a record source has left out neurons");
  intake.start(config_.kernels);
  stats_.record_pages += intake.reads.pages.size();
  plan_.clear();
  plan_.ops = intake.reads.pages;
  plan_.lookups = intake.reads.lookups;
  for (const PageOp& op : plan_.ops) {
    stats_.channel_bytes += {op.channel_bytes};
    stats_.record_bytes += {op.channel_bytes};
  }
  read_by_page(id, at);
  run_neurons(id, at);
}

void HeadScheduler::record_page_arrived(PageRead read, SimTime at) {
  neuron_intakes_[read.job.value].arrive(read.piece);
  take_record_pages(read.job, at);
  run_neurons(read.job, at);
}

void HeadScheduler::take_record_pages(JobId id, SimTime at) {
  NeuronIntake& intake = neuron_intakes_[id.value];
  while (intake.can_take()) pages_consumed({id, intake.take()}, at);
}

/// Puts the neurons that may start on the kernels, unless it is flash's turn.
void HeadScheduler::run_neurons(JobId id, SimTime at) {
  Job& j = jobs_[id.value];
  NeuronIntake& intake = neuron_intakes_[id.value];
  const FeedForwardShape& shape = j.neurons->shape;
  while (!j.awaits_turn && intake.ready()) {
    j.awaits_turn = !turns_.start_work({id});
    if (j.awaits_turn) return;
    intake.begin();
    const std::uint64_t exponentials = shape.activation == Activation::silu ? shape.tokens : 0;
    const std::uint64_t softmax =
        UnitSpeeds::faster(ceil_div(exponentials, config_.softmax_per_cycle), config_.speeds.softmax);
    const std::uint64_t cycles =
        UnitSpeeds::faster(ceil_div(shape.macs(), config_.macs_per_cycle), config_.speeds.products) + softmax;
    const SimTime duration = cycles_time(cycles, config_.clock);
    stats_.macs += shape.macs();
    stats_.neuron_macs += shape.macs();
    stats_.neuron_busy += duration;
    begin_unit(id, {EngineUnit::kernels, cycles, duration, cycles_time(softmax, config_.clock)}, at);
  }
}

void HeadScheduler::neuron_done(JobId id, SimTime at) {
  NeuronIntake& intake = neuron_intakes_[id.value];
  intake.end();
  if (!intake.over()) {
    take_record_pages(id, at);
    return run_neurons(id, at);
  }
  const NeuronJob& job = *jobs_[id.value].neurons;
  const std::size_t elements = std::size_t{job.shape.tokens} * job.shape.width;
  const std::size_t rows = job.neurons * job.shape.row_elements();
  if (job.y != nullptr)
    feed_forward(job.shape, {job.x, elements}, {intake.reads.rows, rows},
                 {job.bias, job.bias == nullptr ? 0 : std::size_t{job.neurons}}, {job.y, elements});
  ++stats_.feed_forward_jobs;
  stats_.neurons += job.neurons;
  stats_.engine_bytes += {rows * sizeof(Half)};
  stats_.phase_time[static_cast<std::size_t>(JobPhase::feed_forward)] += at - jobs_[id.value].since;
  end_job(id, at);
}

}  // namespace csdsim::engine
