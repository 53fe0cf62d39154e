#include "csd_model/firmware/firmware_core.h"

#include <algorithm>
#include <utility>

#include "simulation/sim_time.h"

namespace csd_model {

using namespace csdsim;

FirmwareCore::FirmwareCore(const sc_core::sc_module_name& name) : sc_module(name) {}

void FirmwareCore::run(SimTime duration, Work work) {
  if (duration.ps == 0 && queue_.empty()) {
    work();
    return;
  }
  free_at_ = std::max(free_at_, sim_time_now()) + duration;
  busy_ += duration;
  queue_.push_back({free_at_, std::move(work)});
  due_.set(queue_.front().due);
}

void FirmwareCore::on_due() {
  // Work may ask for more: it joins the back of the queue, which is why the front stays until its work has run.
  while (!queue_.empty() && queue_.front().due <= sim_time_now()) {
    const Work work = std::move(queue_.front().work);
    work();
    queue_.pop_front();
  }
  if (!queue_.empty()) due_.set(queue_.front().due);
}

}  // namespace csd_model
