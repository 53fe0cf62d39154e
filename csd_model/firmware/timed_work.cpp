#include "csd_model/firmware/timed_work.h"

#include "simulation/sim_time.h"

namespace csdsim::csd_model {

void TimedWork::at(SimTime due, std::uint64_t order, Work work) {
  pending_.insert({due, order, work_.put(std::move(work))});
  due_.set(pending_.front_time());
}

void TimedWork::forget() {
  for (; !pending_.empty(); pending_.pop()) work_.release(pending_.front().slot);
  due_.cancel();
}

void TimedWork::postpone(SimTime by) {
  if (pending_.empty()) return;
  pending_.postpone(by);
  due_.cancel();
  due_.set(pending_.front_time());
}

void TimedWork::on_due() {
  // Work may add more work. While it runs, its owner does not count as idle.
  running_ = true;
  while (pending_.front_time() <= sim_time_now()) {
    const std::uint32_t slot = pending_.front().slot;
    pending_.pop();
    const Work work = work_.release(slot);
    work();
  }
  running_ = false;
  if (!pending_.empty()) due_.set(pending_.front_time());
}

}  // namespace csdsim::csd_model
