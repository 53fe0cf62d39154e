// A driver whose controller loses its power and comes back.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "nvme_if/spec/kv_command.h"
#include "nvme_if/sysc/nvme_driver.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {

void NvmeDriver::keep_command(Queue& q, const SubmissionEntry& command) {
  Extra& extra = q.extras[command.cid];
  extra.command = command;
  extra.number = placed_++;
}

void NvmeDriver::lose_controller() {
  if (!params_.may_lose_controller)
    throw UserError("NVMe driver: lose_controller() needs NvmeDriverParams::may_lose_controller");
  if (state_ == State::failed || (state_ == State::starting && !restarted_))
    throw UserError("NVMe driver: the controller loses its power before it has been ready for the first time");
  if (ready())
    for (std::size_t i = 1; i < queues_.size(); ++i) reap(*queues_[i]);
  state_ = State::lost;
  for (Alarm* const alarm : {&reaction_due_, &doorbells_due_, &timeout_due_, &poll_due_}) alarm->cancel();
  watching_ = false;
  rings_.clear();
  reaps_.clear();
  for (const auto& q : queues_) interrupt(*q);
}

/// Takes the commands under way out of the queue, which is no more: nothing is placed in it. Nobody waits for those of
/// the admin queue, which belong to a bring-up that was interrupted.
void NvmeDriver::interrupt(Queue& q) {
  q.doorbell_due = q.reap_due = false;
  q.free_cids.clear();
  std::vector<Interrupted> found;
  for (std::size_t cid = 0; cid < q.slots.size(); ++cid) {
    if (q.slots[cid].busy) found.push_back({q.slots[cid], std::move(q.extras[cid])});
    q.slots[cid] = {};
    q.extras[cid] = {};
  }
  if (q.id.value == 0) {
    completed_ += found.size() + q.pending.size();
    pending_ -= q.pending.size();
    q.pending.clear();
    return;
  }
  // Those of an earlier loss that were not issued again yet come first.
  std::ranges::sort(found, {}, [](const Interrupted& one) { return one.extra.number; });
  std::ranges::move(found, std::back_inserter(q.interrupted));
}

void NvmeDriver::restart() {
  if (state_ != State::lost) throw UserError("NVMe driver: restart() without a loss of the controller");
  state_ = State::starting;
  restarted_ = true;
  up_ = 0;
  deadline_ = SimTime{-1};
  poll_due_.set(sim_now());
}

/// A queue in the controller as after its creation. I/O commands wait until all queues are there.
void NvmeDriver::start_queue(Queue& q) {
  q.sq_tail = q.cq_head = 0;
  q.phase = true;
  const std::vector<std::byte> zeros(std::size_t{q.depth} * sizeof(CompletionEntry));
  write_memory(q.cq, zeros.data(), zeros.size());
  if (q.id.value == 0) free_commands(q);
}

/// Command identifiers are given out smallest first.
void NvmeDriver::free_commands(Queue& q) {
  q.free_cids.clear();
  for (std::uint32_t cid = q.depth - 1; cid-- > 0;) q.free_cids.push_back(static_cast<std::uint16_t>(cid));
}

/// All of them fit: they were in the queue before.
void NvmeDriver::issue_again(Queue& q) {
  if (q.id.value == 0) return;
  free_commands(q);
  reissued_ += q.interrupted.size();
  for (Interrupted& one : std::exchange(q.interrupted, {})) {
    const std::uint16_t cid = q.free_cids.back();
    one.extra.command.cid = cid;
    q.slots[cid] = one.slot;
    q.extras[cid] = std::move(one.extra);
    SubmissionEntry command = q.extras[cid].command;
    if (is_kv(command.opcode)) command.cdw2 |= kIssuedAgain;
    keep_command(q, command);
    occupy(q.slots[cid], command.opcode);
    write_memory(q.sq + Bytes{std::uint64_t{q.sq_tail} * sizeof command}, &command, sizeof command);
    advance_tail(q);
  }
}

}  // namespace csdsim::nvme
