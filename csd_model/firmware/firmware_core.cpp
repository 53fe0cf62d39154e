#include "csd_model/firmware/firmware_core.h"

#include <algorithm>
#include <utility>

#include "nfc/sysc/sim_time.h"

namespace csd_model {

using namespace csdsim;

FirmwareCore::FirmwareCore(const sc_core::sc_module_name& name) : sc_module(name) {
  SC_METHOD(on_due);
  sensitive << due_;
  dont_initialize();
}

void FirmwareCore::run(SimTime duration, Work work) {
  const SimTime now = sim_time_now();
  if (duration.ps == 0 && queue_.empty()) {
    work();
    return;
  }
  free_at_ = std::max(free_at_, now) + duration;
  busy_ += duration;
  const bool idle = queue_.empty();
  queue_.push({free_at_, std::move(work)});
  if (idle) due_.notify(to_sc_time(free_at_ - now));
}

void FirmwareCore::on_due() {
  const SimTime now = sim_time_now();
  // Work may ask for more: it joins the back of the queue, which is why the front stays until its work has run.
  while (!queue_.empty() && queue_.front().due <= now) {
    const Work work = std::move(queue_.front().work);
    work();
    queue_.pop();
  }
  if (!queue_.empty()) due_.notify(to_sc_time(queue_.front().due - now));
}

}  // namespace csd_model
