// Bring-up of the controller by NvmeDriver (NVMe Base Specification 1.4, section 7.6.1): a chain of steps. A poll of
// CSTS or the completion of the previous step starts each one. Accesses over the sockets are here as well.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "nvme_if/spec/encode.h"
#include "nvme_if/sysc/nvme_driver.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {

void NvmeDriver::run_step(Step step) {
  try {
    (this->*step)();
  } catch (const UserError& e) {
    fail(e.what());
  }
}

void NvmeDriver::fail(std::string why) {
  failure_ = std::move(why);
  state_ = State::failed;
}

void NvmeDriver::poll_method() { run_step(&NvmeDriver::poll); }

void NvmeDriver::poll() {
  if (deadline_ < SimTime{}) disable_controller();
  const Csts csts = Csts::decode(static_cast<std::uint32_t>(bar_access(tlm::TLM_READ_COMMAND, reg::csts, 4, 0)));
  if (csts.rdy == awaited_ready_) return awaited_ready_ ? identify() : enable_controller();
  if (sim_now() > deadline_ || (awaited_ready_ && csts.cfs))
    return fail(fmt::format("NVMe driver: the controller does not become {}", awaited_ready_ ? "ready" : "idle"));
  poll_again(params_.poll_interval);
}

/// At the start a process of the kernel polls, later an alarm: the event loop may be ahead of the kernel.
void NvmeDriver::poll_again(SimTime after) {
  if (restarted_) return poll_due_.set(sim_now() + after);
  next_trigger(to_sc_time(after));
}

void NvmeDriver::await_ready(bool ready) {
  awaited_ready_ = ready;
  deadline_ = sim_now() + SimTime::milliseconds(500) * std::max<int>(cap_.to, 1);
}

void NvmeDriver::disable_controller() {
  map_queue_memory();
  cap_ = Cap::decode(bar_access(tlm::TLM_READ_COMMAND, reg::cap, 8, 0));
  bar_access(tlm::TLM_WRITE_COMMAND, reg::cc, 4, 0);
  await_ready(false);
}

void NvmeDriver::map_queue_memory() {
  tlm::tlm_generic_payload probe;
  probe.set_address(params_.queue_memory.address.value);
  probe.set_command(tlm::TLM_WRITE_COMMAND);
  tlm::tlm_dmi dmi;
  const std::uint64_t first = params_.queue_memory.address.value;
  const std::uint64_t last = first + params_.queue_memory.length.value - 1;
  if (memory->get_direct_mem_ptr(probe, dmi) && dmi.is_read_write_allowed() && dmi.get_start_address() <= first &&
      dmi.get_end_address() >= last)
    direct_ = reinterpret_cast<std::byte*>(dmi.get_dmi_ptr()) + (first - dmi.get_start_address());
}

void NvmeDriver::enable_controller() {
  depth_ = std::min<std::uint32_t>(params_.queue_depth, std::uint32_t{cap_.mqes} + 1);
  const Queue& admin = add_queue(std::min<std::uint32_t>(depth_, 64));
  const auto entries = static_cast<std::uint16_t>(admin.depth - 1);
  bar_access(tlm::TLM_WRITE_COMMAND, reg::aqa, 4, encode_aqa(entries, entries));
  bar_access(tlm::TLM_WRITE_COMMAND, reg::asq, 8, admin.sq.value);
  bar_access(tlm::TLM_WRITE_COMMAND, reg::acq, 8, admin.cq.value);
  bar_access(tlm::TLM_WRITE_COMMAND, reg::cc, 4,
             Cc{.en = true,
                .ams = static_cast<std::uint8_t>(params_.priorities.of_queue.empty() ? 0 : 1),
                .iosqes = 6,
                .iocqes = 4}
                 .encode());
  await_ready(true);
  poll_again({});
}

void NvmeDriver::admin(std::string_view what, const SubmissionEntry& command, PhysicalAddress page, Step next) {
  const Segment data{page, Bytes::kib(4)};
  submit(QueueId{0}, command, {&data, page.value != 0 ? 1u : 0u},
         [this, what, next](const CompletionEntry& e, SimTime) {
           if (!e.code().ok()) return fail(fmt::format("NVMe driver: {} failed with {}", what, status_name(e.code())));
           admin_dw0_ = e.dw0;
           run_step(next);
         });
}

void NvmeDriver::identify() {
  identify_page_ = take_list();
  admin("Identify Controller", encode_identify(cns::identify_controller), identify_page_,
        &NvmeDriver::controller_identified);
}

void NvmeDriver::controller_identified() {
  read_memory(identify_page_, &controller_, sizeof controller_);
  admin("Identify Namespace", encode_identify(cns::identify_namespace, NamespaceId{1}), identify_page_,
        &NvmeDriver::namespace_identified);
}

void NvmeDriver::namespace_identified() {
  read_memory(identify_page_, &namespace_, sizeof namespace_);
  block_size_ = {std::uint64_t{1} << namespace_.lbaf[namespace_.flbas & 0xF].lbads};
  blocks_a_command_ = std::min<std::uint64_t>(mdts().value / block_size_.value, 65536);
  free_lists_.push_back(identify_page_);
  admin("Set Features (number of queues)", encode_set_number_of_queues(params_.queues), {},
        &NvmeDriver::queues_granted);
}

void NvmeDriver::queues_granted() {
  granted_queues_ = std::min({std::uint32_t{params_.queues}, (admin_dw0_ & 0xFFFF) + 1, (admin_dw0_ >> 16) + 1});
  if (params_.priorities.of_queue.empty()) return set_coalescing();
  const auto& [high, medium, low] = params_.priorities.weights;
  admin("Set Features (arbitration)", encode_set_arbitration(high, medium, low), {}, &NvmeDriver::set_coalescing);
}

void NvmeDriver::set_coalescing() {
  const InterruptCoalescing& coalescing = params_.coalescing;
  if (coalescing.completions == 1) return create_completion_queue();
  const auto units = static_cast<std::uint32_t>(coalescing.time.ps / InterruptCoalescing::kUnit.ps);
  admin("Set Features (interrupt coalescing)", encode_set_interrupt_coalescing(coalescing.completions, units), {},
        &NvmeDriver::create_completion_queue);
}

void NvmeDriver::create_completion_queue() {
  if (up_ == granted_queues_ + std::size_t{1}) {
    state_ = State::ready;
    if (restarted_)
      for (const auto& q : queues_) issue_again(*q);
    reaction_due_.set(sim_now());
    if (params_.run_ahead && bells_ != nullptr) {
      hold_.release();
      hold_.loop().ask_to_run_ahead();
    }
    return;
  }
  const Queue& q = add_queue(depth_);
  admin("Create I/O Completion Queue", encode_create_io_cq(q.id, q.depth, InterruptVector{q.id.value}), q.cq,
        &NvmeDriver::create_submission_queue);
}

void NvmeDriver::create_submission_queue() {
  const Queue& q = *queues_[up_ - 1];
  const auto& classes = params_.priorities.of_queue;
  const QueuePriority priority = classes.empty() ? QueuePriority{} : classes.at(q.id.value - 1u);
  admin("Create I/O Submission Queue", encode_create_io_sq(q.id, q.depth, q.id, priority), q.sq,
        &NvmeDriver::create_completion_queue);
}

/// A queue that was there before the controller was lost keeps its place in memory.
NvmeDriver::Queue& NvmeDriver::add_queue(std::uint32_t depth) {
  if (up_ < queues_.size()) {
    start_queue(*queues_[up_]);
    return *queues_[up_++];
  }
  ++up_;
  Queue& q = *queues_.emplace_back(std::make_unique<Queue>());
  q.id = QueueId{static_cast<std::uint16_t>(queues_.size() - 1)};
  q.depth = depth;
  const auto take = [this](std::uint64_t bytes) {
    const PhysicalAddress base = take_page();
    for (std::uint64_t size = 4096; size < bytes; size += 4096) take_page();
    return base;
  };
  q.sq = take(std::uint64_t{depth} * sizeof(SubmissionEntry));
  q.cq = take(std::uint64_t{depth} * sizeof(CompletionEntry));
  if (direct_ != nullptr) {
    const auto at = [this](PhysicalAddress a) { return direct_ + (a.value - params_.queue_memory.address.value); };
    q.submissions = reinterpret_cast<SubmissionEntry*>(at(q.sq));
    q.completions = reinterpret_cast<const CompletionEntry*>(at(q.cq));
  }
  // One entry of a queue always stays free.
  q.slots.resize(depth - 1);
  q.extras.resize(depth - 1);
  free_commands(q);
  return q;
}

// Sockets.

void NvmeDriver::access_memory(tlm::tlm_command command, PhysicalAddress address, void* data, std::size_t size) {
  tlm::tlm_generic_payload p;
  p.set_command(command);
  p.set_address(address.value);
  p.set_data_ptr(static_cast<unsigned char*>(data));
  p.set_data_length(static_cast<unsigned>(size));
  p.set_streaming_width(static_cast<unsigned>(size));
  if (memory->transport_dbg(p) != size)
    throw UserError(fmt::format("NVMe driver: no memory at {:#x} for its queues", address.value));
}

std::uint64_t NvmeDriver::bar_access(tlm::tlm_command command, std::uint64_t offset, std::uint32_t size,
                                     std::uint64_t value) {
  tlm::tlm_generic_payload& p = bar_payload_;
  p.set_command(command);
  p.set_address(offset);
  p.set_data_ptr(reinterpret_cast<unsigned char*>(&value));
  p.set_data_length(size);
  p.set_streaming_width(size);
  p.set_byte_enable_ptr(nullptr);
  p.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
  sc_core::sc_time delay;
  bar->b_transport(p, delay);
  if (!p.is_response_ok())
    throw UserError(
        fmt::format("NVMe driver: access to register {:#x} was refused: {}", offset, p.get_response_string()));
  return value;
}

}  // namespace csdsim::nvme
