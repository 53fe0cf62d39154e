// A stream that measures how long it works.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "host_runtime/cuda/stream.h"

namespace csdsim::host::cuda {

class TimedStream {
 public:
  /// `stream` must outlive this object.
  explicit TimedStream(const Stream& stream) : stream_(stream) {}

  const Stream& stream() const { return stream_; }

  /// Puts work into the stream between two events. What the stream waits for should be put there before.
  template <class Work>
  void run(Work&& work) {
    Period period = spare_.empty() ? Period{} : std::move(spare_.back());
    if (!spare_.empty()) spare_.pop_back();
    period.first.record(stream_);
    work();
    period.second.record(stream_);
    periods_.push_back(std::move(period));
  }

  /// Seconds of all work so far, after waiting for it.
  double seconds() {
    collect(periods_.size());
    return seconds_;
  }
  /// Call after every step, so that the events of the step before it can be used again.
  void end_step() {
    collect(before_step_);
    before_step_ = periods_.size();
  }

 private:
  using Period = std::pair<Event, Event>;

  void collect(std::size_t count) {
    for (; count > 0; --count) {
      periods_.front().second.synchronise();
      seconds_ += 1e-3 * static_cast<double>(periods_.front().second.milliseconds_since(periods_.front().first));
      spare_.push_back(std::move(periods_.front()));
      periods_.pop_front();
    }
  }

  const Stream& stream_;
  std::deque<Period> periods_;
  std::vector<Period> spare_;
  std::size_t before_step_ = 0;
  double seconds_ = 0;
};

}  // namespace csdsim::host::cuda
