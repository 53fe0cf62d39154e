#include "experiment/measure/request_meter.h"

#include <algorithm>

namespace csdsim::experiment {

void RequestMeter::begin(SimTime now) {
  start_ = changed_ = now;
  requests_ = workload_.requests;
  for (host::Request& request : requests_) {
    request.arrival = workload_.served() ? now + request.arrival : now;
    request.output = workload_.output_of(request.id.value);
  }
}

void RequestMeter::observe(const host::OperationRecord& record) {
  if (!record.tag.sequences) return;
  const bool prefill = record.tag.phase == host::Phase::prefill;
  if (record.kind == host::OpKind::embed && prefill)
    for (const host::StepSequence& s : *record.tag.sequences) {
      host::Request& request = requests_.at(s.sequence.value);
      request.admitted = record.start;
      request.state = host::Request::State::running;
    }
  if (record.kind != host::OpKind::sample) return;
  std::uint64_t more = 0, less = 0;
  for (const host::StepSequence& s : *record.tag.sequences) {
    more += s.tokens;
    less += sampled(s, record.end);
  }
  hold(more, less, record.end);
}

std::uint64_t RequestMeter::sampled(const host::StepSequence& sequence, SimTime now) {
  host::Request& request = requests_.at(sequence.sequence.value);
  if (request.generated++ == 0) request.first_token = now;
  request.end = now;
  if (request.generated < request.output) return 0;
  request.state = host::Request::State::ended;
  ++ended_;
  return sequence.context();
}

/// The tokens of a step count from its sample on, and those of sequences that end with it up to that.
void RequestMeter::hold(std::uint64_t more, std::uint64_t less, SimTime now) {
  token_seconds_ += static_cast<double>(tokens_) * (now - changed_).seconds();
  changed_ = now;
  tokens_ += more;
  most_tokens_ = std::max(most_tokens_, tokens_);
  tokens_ -= less;
}

double RequestMeter::mean_tokens() const {
  const double seconds = (changed_ - start_).seconds();
  return seconds > 0 ? token_seconds_ / seconds : 0;
}

}  // namespace csdsim::experiment
