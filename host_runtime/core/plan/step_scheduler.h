// Chooses the sequences of each step of a run, a batch in lockstep or requests that arrive and wait for places, and
// writes the times of their requests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

/// The sequences of a mini-batch in a step.
struct StepPart {
  std::shared_ptr<const std::vector<StepSequence>> sequences = {};  ///< null: the mini-batch is not in the step
  std::vector<SequenceId> ending = {};  ///< generate their last token in the step, and are to be freed
  std::uint64_t kept = 0;               ///< tokens in the cache of the whole mini-batch after the step,
  std::uint64_t left = 0;               ///< and when the ending sequences have been freed
};

struct ScheduledStep {
  Phase phase = Phase::prefill;
  std::uint32_t number = 0;               ///< OpTag::step
  std::vector<StepPart> parts = {};       ///< [mini_batch]
  std::vector<SequenceId> admitted = {};  ///< requests that get their place in the step
};

/// A batch: the prefill of all sequences, then decode steps of those that have not generated all their tokens. If they
/// have their own numbers of tokens (BatchLengths::own), they end and are freed at different steps.
///
/// With TokenProgress, sequences advance by what was accepted, each at its own pace. One that has all its
/// tokens stays in the cache until the others have theirs.
///
/// Requests that arrive: before each step, waiting requests get free places in the order of their arrival
/// (iteration-level scheduling, Orca, OSDI 2022). A step is the prefill of the requests that have just got a place, or
/// if there are none, a decode step of all that run. Prefills come first, as in vLLM ("Efficient Memory Management for
/// Large Language Model Serving with PagedAttention", SOSP 2023, and its default scheduler). Steps have one count.
class StepScheduler {
 public:
  /// Preconditions: a valid workload, a span that fits it, and 1 to workload.batch() mini-batches. With `progress`, the
  /// span is the whole run: its decode steps end when all tokens are there, and next() is called after each step.
  StepScheduler(const BatchLengths& workload, const PlanSpan& span, std::uint32_t mini_batches,
                const TokenProgress* progress = nullptr);

  /// The decision at `now`: a step, a wait until the next arrival, or neither after the last step.
  struct Decision {
    std::optional<ScheduledStep> step = {};
    std::optional<SimTime> wait = {};
  };
  Decision next(SimTime now);

  /// The prefill of these sequences begins at `now`.
  void prefill_begins(std::span<const StepSequence> sequences, SimTime now);
  /// The tokens of a step of these sequences have been sampled at `now`. Call it once for each step, in order.
  void sampled(Phase phase, std::uint32_t step, std::span<const StepSequence> sequences, SimTime now);
  /// All requests of the workload; those of a batch arrive when the first step is asked for. In a span without the
  /// prefill, the times of what was before are missing.
  const std::vector<Request>& requests() const { return requests_; }

  /// The first step of a batch's span: its prefill, or a decode step.
  const ScheduledStep& first_step() const { return first_step_; }
  /// Place of a request that has been admitted, from 0.
  std::uint32_t place_of(SequenceId request) const { return place_[request.value]; }
  /// The places of a mini-batch; in a batch its sequences.
  const std::vector<Share>& shares() const { return shares_; }

 private:
  struct Member {
    SequenceId sequence;
    std::uint32_t generated = 0;
  };
  using Members = std::vector<Member>;

  std::uint32_t context(const Member& member) const;
  bool runs(std::uint32_t sequence, std::uint32_t generated) const { return generated < requests_[sequence].output; }
  /// Tokens of the member's next step.
  std::uint32_t verified(const Member& member) const;
  ScheduledStep step(Phase phase, std::uint32_t number) const;
  /// The members have generated a token each in the step; those that end leave.
  void advance(const ScheduledStep& step);
  /// Tokens of a sequence that takes part in a step and had `before` tokens, after it.
  std::uint32_t generated_after(Phase phase, std::uint32_t step, SequenceId sequence, std::uint32_t before) const;
  void start(SimTime now);
  Decision next_of_batch();
  std::vector<SequenceId> admit(SimTime now);
  std::uint32_t take_place();

  BatchLengths workload_;
  PlanSpan span_;
  const TokenProgress* progress_;
  std::vector<Share> shares_;
  std::vector<Members> members_;  ///< [mini_batch] sequences that run, with the tokens of the steps so far
  std::vector<Request> requests_;
  ScheduledStep first_step_;
  bool started_ = false;              ///< the first step has been asked for: arrivals are simulated times
  std::uint32_t steps_ = 0;           ///< steps so far
  std::size_t arrived_ = 0;           ///< requests that have got a place
  std::vector<std::uint32_t> place_;  ///< [request]
  std::vector<bool> taken_;           ///< [place]
};

}  // namespace csdsim::host
