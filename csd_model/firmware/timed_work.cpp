#include "csd_model/firmware/timed_work.h"

#include "simulation/sim_time.h"

namespace csdsim::csd_model {

void TimedWork::work_due(std::uint64_t slot) {
  const Work work = work_.release(slot);
  work();
}

void TimedWork::forget() {
  for (; !pending_.empty(); pending_.pop())
    if (pending_.front().client == this) work_.release(pending_.front().tag);
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
    const Due due = pending_.front();
    pending_.pop();
    due.client->work_due(due.tag);
  }
  running_ = false;
  if (!pending_.empty()) due_.set(pending_.front_time());
}

}  // namespace csdsim::csd_model
