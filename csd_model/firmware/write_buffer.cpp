#include "csd_model/firmware/write_buffer.h"

#include <utility>

#include "simulation/sim_time.h"

namespace csdsim::csd_model {

std::uint64_t WriteBuffer::enter(Bytes size, std::uint32_t entries) {
  used_ += size;
  tell();
  inside_ += entries;
  groups_.back() += entries;
  return group_ + groups_.size() - 1;
}

void WriteBuffer::leave(std::uint64_t group, Bytes size, std::uint32_t entries) {
  used_ -= size;
  tell();
  inside_ -= entries;
  groups_[group - group_] -= entries;
  for (; groups_.size() > 1 && groups_.front() == 0; groups_.pop_front()) ++group_;
  while (!waiters_.empty() && waiters_.front().end <= group_) {
    const Then then = std::move(waiters_.front().then);
    waiters_.pop_front();
    then();
  }
  admit();
  if (is_short()) request_flush();
}

void WriteBuffer::ask(Bytes size) {
  if (asking_.empty() && takes(size)) return turn_();
  asking_.push_back(size);
}

void WriteBuffer::admit() {
  if (admitting_) return;  // the callback may let bytes leave
  admitting_ = true;
  while (!asking_.empty() && takes(asking_.front())) {
    asking_.pop_front();
    turn_();
  }
  admitting_ = false;
}

void WriteBuffer::tell() const {
  if (observer_ != nullptr) observer_->level(0, used_.value, sim_time_now());
}

void WriteBuffer::forget() {
  inside_ = 0;
  group_ += groups_.size();
  groups_.clear();
  groups_.push_back(0);
  waiters_.clear();
  asking_.clear();
  used_ = {};
  tell();
}

void WriteBuffer::when_left(Then then) {
  if (inside_ == 0) return then();
  waiters_.push_back({group_ + groups_.size(), std::move(then)});
  groups_.push_back(0);
}

}  // namespace csdsim::csd_model
