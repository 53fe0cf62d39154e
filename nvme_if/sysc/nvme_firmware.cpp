// The firmware's cores of the controller: commands wait for one, and each takes firmware_time.
#include <algorithm>
#include <utility>

#include "nvme_if/sysc/nvme_controller.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {

/// Counts the time that the commands in the queue have waited since the last change of it.
void NvmeController::count_waiting() {
  const SimTime now = sim_now();
  firmware_waited_ += (now - counted_until_) * static_cast<std::int64_t>(firmware_.size());
  counted_until_ = now;
}

void NvmeController::push_firmware(Command& c) {
  count_waiting();
  firmware_.push_back(&c);
}

void NvmeController::start_firmware() {
  if (!firmware_.empty()) count_waiting();
  while (!firmware_.empty() && firmware_is_free()) {
    Command& c = *firmware_.front();
    firmware_.pop_front();
    params_.firmware_time.ps > 0 ? give_to_core(c) : execute(c);
  }
}

void NvmeController::give_to_core(Command& c) {
  const SimTime time = params_.firmware_time;
  firmware_busy_ += time;
  if (pool_ != nullptr) {
    const std::uint64_t id = next_in_core_++;
    in_cores_.push_back({id, &c});
    const std::uint32_t opcode = c.queue_.value == 0 ? kAdminKind + c.sqe_.opcode : kIoKind + c.sqe_.opcode;
    pool_->request({.id = id, .amount = static_cast<std::uint64_t>(time.ps), .kind = opcode, .expected = time});
    return;
  }
  in_work_.push_back({sim_now() + time, &c});
  if (core_work_ != nullptr) core_work_->work(0, "command", sim_now(), in_work_.back().due, 0);
  firmware_due_.set(in_work_.front().due);
}

/// A core that is a module has finished a command. A user's may have taken longer than firmware_time, or shorter.
void NvmeController::core_done(const UnitPool::End& end) {
  firmware_busy_ += end.worked - params_.firmware_time;
  firmware_done_ += end.worked;
  if (core_work_ != nullptr) core_work_->work(0, "command", sim_now() - end.worked, sim_now(), 0);
  std::ranges::find(in_cores_, end.id, &InCore::id)->ended = true;
  firmware_due_.set(sim_now());
}

void NvmeController::firmware_step() {
  ready_.clear();
  std::swap(ready_, out_of_step_);
  for (; !in_work_.empty() && in_work_.front().due <= sim_now(); in_work_.pop_front()) {
    ready_.push_back(in_work_.front().command);
    firmware_done_ += params_.firmware_time;
  }
  std::erase_if(in_cores_, [this](const InCore& core) {
    if (core.ended) ready_.push_back(core.command);
    return core.ended;
  });
  for (Command* c : ready_) c->epoch_ == epoch_ ? execute(*c) : recycle(*c);
  start_firmware();
  if (!in_work_.empty()) firmware_due_.set(in_work_.front().due);
}

}  // namespace csdsim::nvme
