// Bring-up of the controller by NvmeDriver (NVMe Base Specification 1.4, section 7.6.1).
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "nvme_if/spec/encode.h"
#include "nvme_if/sysc/nvme_driver.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {

void NvmeDriver::bring_up() {
  // No exception may leave an SC_THREAD: a failure becomes a text that the owner reads.
  try {
    failure_ = try_bring_up();
  } catch (const std::exception& e) {
    failure_ = e.what();
  }
  state_ = failure_.empty() ? State::ready : State::failed;
  // Callbacks run in an SC_METHOD, like all others.
  issue_event_.notify(sc_core::SC_ZERO_TIME);
}

std::string NvmeDriver::try_bring_up() {
  tlm::tlm_generic_payload probe;
  probe.set_address(params_.queue_memory.address.value);
  probe.set_command(tlm::TLM_WRITE_COMMAND);
  tlm::tlm_dmi dmi;
  const std::uint64_t first = params_.queue_memory.address.value;
  const std::uint64_t last = first + params_.queue_memory.length.value - 1;
  if (memory->get_direct_mem_ptr(probe, dmi) && dmi.is_read_write_allowed() && dmi.get_start_address() <= first &&
      dmi.get_end_address() >= last)
    direct_ = reinterpret_cast<std::byte*>(dmi.get_dmi_ptr()) + (first - dmi.get_start_address());

  cap_ = Cap::decode(bar_access(tlm::TLM_READ_COMMAND, reg::cap, 8, 0));
  const SimTime timeout = SimTime::milliseconds(500) * std::max<int>(cap_.to, 1);
  bar_access(tlm::TLM_WRITE_COMMAND, reg::cc, 4, 0);
  if (!wait_ready(false, timeout)) return "NVMe driver: the controller does not become idle";

  const std::uint32_t depth = std::min<std::uint32_t>(params_.queue_depth, std::uint32_t{cap_.mqes} + 1);
  Queue& admin_queue = add_queue(std::min<std::uint32_t>(depth, 64));
  const auto entries = static_cast<std::uint16_t>(admin_queue.depth - 1);
  bar_access(tlm::TLM_WRITE_COMMAND, reg::aqa, 4, encode_aqa(entries, entries));
  bar_access(tlm::TLM_WRITE_COMMAND, reg::asq, 8, admin_queue.sq.value);
  bar_access(tlm::TLM_WRITE_COMMAND, reg::acq, 8, admin_queue.cq.value);
  bar_access(tlm::TLM_WRITE_COMMAND, reg::cc, 4, Cc{.en = true, .iosqes = 6, .iocqes = 4}.encode());
  if (!wait_ready(true, timeout)) return "NVMe driver: the controller does not become ready";

  const Segment page{take_page(), Bytes::kib(4)};
  const auto failed = [](std::string_view what, Status s) {
    return fmt::format("NVMe driver: {} failed with {}", what, status_name(s));
  };
  if (const Status s = admin(encode_identify(cns::identify_controller), {&page, 1}); !s.ok())
    return failed("Identify Controller", s);
  read_memory(page.address, &controller_, sizeof controller_);
  if (const Status s = admin(encode_identify(cns::identify_namespace, NamespaceId{1}), {&page, 1}); !s.ok())
    return failed("Identify Namespace", s);
  read_memory(page.address, &namespace_, sizeof namespace_);
  free_lists_.push_back(page.address);

  std::uint32_t granted = 0;
  if (const Status s = admin(encode_set_number_of_queues(params_.queues), {}, &granted); !s.ok())
    return failed("Set Features (number of queues)", s);
  const std::uint32_t pairs = std::min({std::uint32_t{params_.queues}, (granted & 0xFFFF) + 1, (granted >> 16) + 1});
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const Queue& q = add_queue(depth);
    SubmissionEntry create = encode_create_io_cq(q.id, depth, InterruptVector{q.id.value});
    const Segment cq{q.cq, Bytes::kib(4)};
    if (const Status s = admin(create, {&cq, 1}); !s.ok()) return failed("Create I/O Completion Queue", s);
    create = encode_create_io_sq(q.id, depth, q.id);
    const Segment sq{q.sq, Bytes::kib(4)};
    if (const Status s = admin(create, {&sq, 1}); !s.ok()) return failed("Create I/O Submission Queue", s);
  }
  return {};
}

bool NvmeDriver::wait_ready(bool value, SimTime timeout) {
  const SimTime end = sim_now() + timeout;
  for (;;) {
    const Csts csts = Csts::decode(static_cast<std::uint32_t>(bar_access(tlm::TLM_READ_COMMAND, reg::csts, 4, 0)));
    if (csts.rdy == value) return true;
    if (sim_now() > end || (value && csts.cfs)) return false;
    wait(to_sc_time(params_.poll_interval));
  }
}

Status NvmeDriver::admin(const SubmissionEntry& command, std::span<const Segment> segments, std::uint32_t* dw0) {
  bool over = false;
  CompletionEntry result;
  submit(QueueId{0}, command, segments, [&](const CompletionEntry& entry, SimTime) {
    result = entry;
    over = true;
    admin_event_.notify();
  });
  while (!over) wait(admin_event_);
  if (dw0 != nullptr) *dw0 = result.dw0;
  return result.code();
}

NvmeDriver::Queue& NvmeDriver::add_queue(std::uint32_t depth) {
  Queue& q = queues_.emplace_back();
  q.id = QueueId{static_cast<std::uint16_t>(queues_.size() - 1)};
  q.depth = depth;
  const auto take = [this](std::uint64_t bytes) {
    const PhysicalAddress base = take_page();
    for (std::uint64_t size = 4096; size < bytes; size += 4096) take_page();
    return base;
  };
  q.sq = take(std::uint64_t{depth} * sizeof(SubmissionEntry));
  q.cq = take(std::uint64_t{depth} * sizeof(CompletionEntry));
  // One entry of a queue always stays free. The smallest identifiers are used first.
  q.slots.resize(depth - 1);
  for (std::uint32_t cid = depth - 1; cid-- > 0;) q.free_cids.push_back(static_cast<std::uint16_t>(cid));
  return q;
}

}  // namespace csdsim::nvme
