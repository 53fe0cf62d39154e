#include "host_runtime/core/plan/step_scheduler.h"

#include <algorithm>

namespace csdsim::host {

StepScheduler::StepScheduler(const BatchLengths& workload, const PlanSpan& span, std::uint32_t mini_batches,
                             const TokenProgress* progress)
    : workload_(workload),
      span_(span),
      progress_(progress),
      shares_(even_shares(workload.batch(), mini_batches)),
      members_(mini_batches),
      requests_(workload.requests) {
  const std::uint32_t generated = span.prefill ? 0 : workload_.generated_before(span.first_step);
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].output = workload_.output_of(i);
    requests_[i].generated = std::min(generated, requests_[i].output);
  }
  if (workload_.served()) {
    place_.resize(workload_.size());
    taken_.resize(workload_.places);
    return;
  }
  for (std::uint32_t mb = 0; mb < mini_batches; ++mb)
    for (std::uint32_t s = shares_[mb].first; s < shares_[mb].first + shares_[mb].count; ++s)
      if (!workload_.own_outputs() || runs(s, generated)) members_[mb].push_back({SequenceId{s}, generated});
  first_step_ = span.prefill ? step(Phase::prefill, 0) : step(Phase::decode, span.first_step);
}

/// Tokens in the cache before the member's next step.
std::uint32_t StepScheduler::context(const Member& member) const {
  return member.generated == 0 ? 0 : workload_.prompt_of(member.sequence) + member.generated - 1;
}

std::uint32_t StepScheduler::verified(const Member& member) const {
  if (member.generated == 0) return workload_.prompt_of(member.sequence);
  return 1 + (progress_ != nullptr ? progress_->proposed(member.sequence) : workload_.speculation.draft_tokens);
}

/// In a prefill step, those that have not generated a token take part.
ScheduledStep StepScheduler::step(Phase phase, std::uint32_t number) const {
  ScheduledStep step{.phase = phase, .number = number};
  const bool frees = workload_.own_outputs() || workload_.served();
  for (const Members& members : members_) {
    StepPart& part = step.parts.emplace_back();
    auto sequences = std::make_shared<std::vector<StepSequence>>();
    for (const Member& m : members) {
      const std::uint32_t before = context(m);
      const bool ended = !runs(m.sequence.value, m.generated);
      const bool takes_part = (phase == Phase::prefill) == (m.generated == 0) && !ended;
      const std::uint32_t tokens = takes_part ? verified(m) : 0;
      part.kept += before + tokens;
      part.left += before + tokens;
      if (!takes_part) continue;
      sequences->push_back({m.sequence, before, tokens});
      if (!frees || runs(m.sequence.value, m.generated + 1)) continue;
      part.ending.push_back(m.sequence);
      part.left -= before + tokens;
    }
    if (!sequences->empty()) part.sequences = std::move(sequences);
  }
  return step;
}

std::uint32_t StepScheduler::generated_after(Phase phase, std::uint32_t step, SequenceId sequence,
                                             std::uint32_t before) const {
  if (progress_ != nullptr) return progress_->generated(sequence);
  const bool drafts = workload_.speculation.draft_tokens > 0 && phase == Phase::decode;
  return drafts ? workload_.generated_before(step + 1) : before + 1;
}

void StepScheduler::prefill_begins(std::span<const StepSequence> sequences, SimTime now) {
  for (const StepSequence& s : sequences) {
    Request& request = requests_[s.sequence.value];
    request.admitted = now;
    request.state = Request::State::running;
  }
}

void StepScheduler::sampled(Phase phase, std::uint32_t step, std::span<const StepSequence> sequences, SimTime now) {
  for (const StepSequence& s : sequences) {
    Request& request = requests_[s.sequence.value];
    if (request.generated == 0) request.first_token = now;
    request.generated = generated_after(phase, step, s.sequence, request.generated);
    request.end = now;
    if (request.generated >= request.output) request.state = Request::State::ended;
  }
}

void StepScheduler::advance(const ScheduledStep& step) {
  ++steps_;
  if (progress_ != nullptr) return;
  for (Members& members : members_) {
    for (Member& m : members)
      if ((step.phase == Phase::prefill) == (m.generated == 0))
        m.generated = generated_after(step.phase, step.number, m.sequence, m.generated);
    std::erase_if(members, [&](const Member& m) {
      const bool ended = !runs(m.sequence.value, m.generated);
      if (ended && workload_.served()) taken_[place_[m.sequence.value]] = false;
      return ended;
    });
  }
}

StepScheduler::Decision StepScheduler::next_of_batch() {
  const bool prefill = span_.prefill && steps_ == 0;
  const std::uint32_t decoded = steps_ - (span_.prefill && !prefill ? 1 : 0);
  if (progress_ != nullptr && !prefill) {
    bool ended = true;
    for (Members& members : members_)
      for (Member& m : members) {
        m.generated = progress_->generated(m.sequence);
        ended = ended && !runs(m.sequence.value, m.generated);
      }
    if (ended) return {};
  } else if (!prefill && decoded == span_.decode_steps) {
    return {};
  }
  Decision decision{.step = prefill ? step(Phase::prefill, 0) : step(Phase::decode, span_.first_step + decoded)};
  advance(*decision.step);
  return decision;
}

/// The lowest free place of the mini-batch that has the fewest members.
std::uint32_t StepScheduler::take_place() {
  std::uint32_t best = 0;
  const auto room = [&](std::size_t mb) { return members_[mb].size() < shares_[mb].count; };
  for (std::uint32_t mb = 1; mb < members_.size(); ++mb)
    if (room(mb) && (!room(best) || members_[mb].size() < members_[best].size())) best = mb;
  std::uint32_t place = shares_[best].first;
  while (taken_[place]) ++place;
  taken_[place] = true;
  members_[best].push_back({SequenceId{static_cast<std::uint32_t>(arrived_)}, 0});
  return place;
}

std::vector<SequenceId> StepScheduler::admit(SimTime now) {
  std::vector<SequenceId> admitted;
  auto free = std::ranges::count(taken_, false);
  while (free-- > 0 && arrived_ < requests_.size() && requests_[arrived_].arrival <= now) {
    place_[arrived_] = take_place();
    admitted.emplace_back(static_cast<std::uint32_t>(arrived_++));
  }
  return admitted;
}

void StepScheduler::start(SimTime now) {
  started_ = true;
  for (Request& request : requests_) request.arrival = workload_.served() ? now + request.arrival : now;
}

StepScheduler::Decision StepScheduler::next(SimTime now) {
  if (!started_) start(now);
  if (!workload_.served()) return next_of_batch();
  std::vector<SequenceId> admitted = admit(now);
  Decision decision;
  if (!admitted.empty()) {
    decision.step = step(Phase::prefill, steps_);
    decision.step->admitted = std::move(admitted);
  } else if (std::ranges::any_of(members_, [](const Members& m) { return !m.empty(); })) {
    decision.step = step(Phase::decode, steps_);
  } else if (arrived_ < requests_.size()) {
    decision.wait = requests_[arrived_].arrival;
  }
  if (decision.step) advance(*decision.step);
  return decision;
}

}  // namespace csdsim::host
