#include "csd_model/firmware/timed_work.h"

#include "simulation/sim_time.h"

namespace csdsim::csd_model {

void TimedWork::at(SimTime due, std::uint64_t order, Work work) {
  pending_.emplace(std::pair(due, order), std::move(work));
  due_.set(pending_.begin()->first.first);
}

void TimedWork::on_due() {
  // Work may add more work. It stays pending while it runs, so that its owner does not count as idle meanwhile.
  while (!pending_.empty() && pending_.begin()->first.first <= sim_time_now()) {
    const auto first = pending_.begin();
    const Work work = std::move(first->second);
    work();
    pending_.erase(first);
  }
  if (!pending_.empty()) due_.set(pending_.begin()->first.first);
}

}  // namespace csdsim::csd_model
