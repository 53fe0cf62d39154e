// A controller that loses its power.
#include <algorithm>

#include "base/error.h"
#include "nvme_if/sysc/nvme_controller.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {

void NvmeController::power_off() {
  if (pool_ != nullptr) throw InternalError("a controller whose cores are modules cannot lose power");
  count_waiting();
  for (; !in_work_.empty(); in_work_.pop_front())
    firmware_busy_ -= std::min(in_work_.front().due - sim_now(), params_.firmware_time);
  ++epoch_;
  free_.clear();
  for (const auto& command : slots_) {
    command->forget();
    free_.push_back(command.get());
  }
  for (Fetch& fetch : fetches_) fetch.busy = false;
  for (RingQueue<Command*>& waiting : waiting_) waiting.clear();
  firmware_.clear();
  out_of_step_.clear();
  deletions_.clear();
  event_requests_.clear();
  deferred_.clear();
  reserved_slots_ = unfetched_ = 0;
  live_commands_ = dma_in_flight_ = 0;
  std::ranges::fill(unsignalled_, Unsignalled{});
  for (Alarm* const alarm : {&firmware_due_, &deferred_due_, &signals_due_}) alarm->cancel();
  core_.lose_power();
  powered_ = false;
  disappears_ = true;
}

void NvmeController::power_on() {
  powered_ = true;
  if (EnduranceGroup* const group = core_.endurance_group()) group->note_power_on();
  disappears_ = params_.disappears_at != SimTime::max();
}

}  // namespace csdsim::nvme
