// Commands that a drive does not complete.
#include <fmt/format.h>

#include <string_view>

#include "base/error.h"
#include "nvme_if/spec/command.h"
#include "nvme_if/spec/feed_forward_command.h"
#include "nvme_if/spec/kv_command.h"
#include "nvme_if/sysc/nvme_driver.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {
namespace {

std::string_view io_command_name(std::uint8_t opcode) {
  switch (opcode) {
    case nvm_opcode::flush:
      return "flush";
    case nvm_opcode::write:
      return "write";
    case nvm_opcode::read:
      return "read";
    case nvm_opcode::dataset_management:
      return "dataset_management";
    case block_opcode::feed_forward:
      return "feed_forward";
    case kv_opcode::create:
      return "kv_create";
    case kv_opcode::append:
      return "kv_append";
    case kv_opcode::attend:
      return "kv_attend";
    case kv_opcode::free:
      return "kv_free";
    case kv_opcode::fork:
      return "kv_fork";
    case kv_opcode::score:
      return "kv_score";
    case kv_opcode::fetch:
      return "kv_fetch";
    default:
      return "unknown";
  }
}

}  // namespace

/// Commands are looked at only when the oldest of a moment ago may be late.
void NvmeDriver::check_timeouts() {
  const Queue* of = nullptr;
  std::size_t oldest = 0;
  for (const auto& q : queues_)
    for (std::size_t cid = 0; cid < q->slots.size(); ++cid)
      if (q->slots[cid].busy && (of == nullptr || q->slots[cid].placed < of->slots[oldest].placed)) {
        of = q.get();
        oldest = cid;
      }
  watching_ = of != nullptr;
  if (of == nullptr) return;
  const SimTime due = of->slots[oldest].placed + params_.timeout;
  if (due <= sim_now()) report_timeout(*of, static_cast<std::uint16_t>(oldest));
  timeout_due_.set(due);
}

void NvmeDriver::report_timeout(const Queue& q, std::uint16_t cid) const {
  const Slot& late = q.slots[cid];
  const std::string name =
      q.id.value == 0 ? fmt::format("admin command {:#04x}", late.opcode) : std::string(io_command_name(late.opcode));
  throw UserError(fmt::format(
      "{} does not answer: {} (command {} of queue {}), placed at {:.6f} s, is not complete after {:.6g} s; {} of {} "
      "commands are outstanding. The drive has disappeared, or platform.device.nvme.timeout is too short",
      params_.drive, name, cid, q.id.value, late.placed.seconds(), params_.timeout.seconds(), issued_ - completed_,
      issued_));
}

}  // namespace csdsim::nvme
