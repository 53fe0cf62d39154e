#include "experiment/measure/request_meter.h"

#include <algorithm>

namespace csdsim::experiment {

/// The tokens of a step count from its sample on, and those of sequences that end with it up to that.
void RequestMeter::observe(const host::OperationRecord& record, std::span<const host::Request> requests) {
  if (record.kind != host::OpKind::sample) return;
  token_seconds_ += static_cast<double>(tokens_) * (record.end - changed_).seconds();
  changed_ = record.end;
  std::uint64_t freed = 0;
  for (const host::StepSequence& s : *record.tag.sequences) {
    tokens_ += s.tokens;
    if (requests[s.sequence.value].state != host::Request::State::ended) continue;
    freed += s.context();
    ++ended_;
  }
  most_tokens_ = std::max(most_tokens_, tokens_);
  tokens_ -= freed;
}

double RequestMeter::mean_tokens() const {
  const double seconds = (changed_ - start_).seconds();
  return seconds > 0 ? token_seconds_ / seconds : 0;
}

}  // namespace csdsim::experiment
