#include "nvme_if/core/controller_core.h"

#include <fmt/format.h>

#include <bit>

#include "base/error.h"

namespace csdsim::nvme {
namespace {

void require_controller(bool condition, std::string_view what, std::uint64_t found, std::string_view right) {
  if (!condition) throw UserError(fmt::format("NVMe controller: {} is {}, must be {}", what, found, right));
}

bool power_of_two_within(Bytes b, Bytes low, Bytes high) {
  return std::has_single_bit(b.value) && b >= low && b <= high;
}

}  // namespace

void validate(const ControllerParams& p) {
  require_controller(p.io_queues >= 1 && p.io_queues <= 65534, "io_queues", p.io_queues, "1 to 65534");
  require_controller(p.queue_depth >= 2 && p.queue_depth <= 65536, "queue_depth", p.queue_depth, "2 to 65536 entries");
  require_controller(power_of_two_within(p.mdts, Bytes::kib(4), Bytes::gib(1)), "mdts", p.mdts.value,
                     "a power of two from 4 KiB to 1 GiB");
  require_controller(power_of_two_within(p.block_size, Bytes{512}, Bytes::kib(64)), "block_size", p.block_size.value,
                     "a power of two from 512 B to 64 KiB");
  require_controller(p.block_size <= p.mdts, "block_size", p.block_size.value, "at most mdts");
  require_controller(p.namespace_blocks >= 1, "namespace_blocks", p.namespace_blocks, "at least 1");
  require_controller(p.dstrd <= 15, "dstrd", p.dstrd, "0 to 15");
  require_controller(p.mpsmax <= 15, "mpsmax", p.mpsmax, "0 to 15");
}

ControllerCore::ControllerCore(ControllerParams params) : params_(std::move(params)) {
  validate(params_);
  cap_.mqes = static_cast<std::uint16_t>(params_.queue_depth - 1);
  cap_.dstrd = params_.dstrd;
  cap_.mpsmax = params_.mpsmax;
  const std::uint64_t doorbells = 2u * std::uint64_t{queue_limit()} * (std::uint64_t{4} << params_.dstrd);
  bar_size_ = {reg::doorbells + (doorbells + 4095) / 4096 * 4096};
  clear();
}

void ControllerCore::clear() {
  sqs_.clear();
  cqs_.clear();
  sqs_.resize(queue_limit());
  cqs_.resize(queue_limit());
  granted_queues_ = params_.io_queues;
  features_ = {};
  events_.reset();
}

std::uint32_t ControllerCore::read_dword(std::uint64_t offset) const {
  switch (offset) {
    case reg::cap:
      return static_cast<std::uint32_t>(cap_.encode());
    case reg::cap + 4:
      return static_cast<std::uint32_t>(cap_.encode() >> 32);
    case reg::vs:
      return kVersion_1_4;
    case reg::cc:
      return cc_.encode();
    case reg::csts:
      return csts_.encode();
    case reg::aqa:
      return aqa_;
    case reg::asq:
      return static_cast<std::uint32_t>(asq_);
    case reg::asq + 4:
      return static_cast<std::uint32_t>(asq_ >> 32);
    case reg::acq:
      return static_cast<std::uint32_t>(acq_);
    case reg::acq + 4:
      return static_cast<std::uint32_t>(acq_ >> 32);
    default:
      return 0;
  }
}

std::optional<std::uint64_t> ControllerCore::read(std::uint64_t offset, std::uint32_t size) const {
  if ((size != 4 && size != 8) || offset % size != 0 || offset >= bar_size().value) return std::nullopt;
  if (size == 4) return read_dword(offset);
  return read_dword(offset) | (std::uint64_t{read_dword(offset + 4)} << 32);
}

RegisterEffect ControllerCore::write(std::uint64_t offset, std::uint32_t size, std::uint64_t value) {
  const bool wide = size == 8 && (offset == reg::asq || offset == reg::acq);
  if ((size != 4 && !wide) || offset % 4 != 0 || offset >= bar_size().value)
    return {.kind = RegisterEffect::Kind::refused};
  if (offset >= reg::doorbells) return ring_doorbell(offset, static_cast<std::uint32_t>(value));
  if (offset == reg::cc) return write_cc(static_cast<std::uint32_t>(value));

  // The admin queue registers hold while the controller is enabled.
  if (cc_.en) return {};
  constexpr std::uint64_t kPageMask = ~std::uint64_t{0xFFF};
  const auto set_low = [&](std::uint64_t& r) { r = (r & ~std::uint64_t{0xFFFF'FFFF}) | (value & 0xFFFF'F000u); };
  const auto set_high = [&](std::uint64_t& r) { r = (r & 0xFFFF'FFFFu) | (value << 32); };
  switch (offset) {
    case reg::aqa:
      aqa_ = static_cast<std::uint32_t>(value) & 0x0FFF'0FFFu;
      break;
    case reg::asq:
      wide ? void(asq_ = value & kPageMask) : set_low(asq_);
      break;
    case reg::asq + 4:
      set_high(asq_);
      break;
    case reg::acq:
      wide ? void(acq_ = value & kPageMask) : set_low(acq_);
      break;
    case reg::acq + 4:
      set_high(acq_);
      break;
    default:
      break;
  }
  return {};
}

RegisterEffect ControllerCore::write_cc(std::uint32_t value) {
  const Cc old = cc_;
  cc_ = Cc::decode(value);
  // Enabling while a reset is still under way takes effect in finish_reset().
  if (resetting_) return {};
  if (old.en && !cc_.en) {
    resetting_ = true;
    return {.kind = RegisterEffect::Kind::reset};
  }
  if (!old.en && cc_.en) return enable();
  if (cc_.en) {
    // Page size, command set and arbitration hold while enabled.
    cc_.css = old.css;
    cc_.mps = old.mps;
    cc_.ams = old.ams;
  }
  if (cc_.shn != 0 && old.shn == 0 && csts_.rdy && csts_.shst == ShutdownStatus::normal) {
    csts_.shst = ShutdownStatus::processing;
    return {.kind = RegisterEffect::Kind::shutdown};
  }
  return {};
}

RegisterEffect ControllerCore::enable() {
  const std::uint32_t asqs = (aqa_ & 0xFFF) + 1;
  const std::uint32_t acqs = (aqa_ >> 16) + 1;
  const bool valid = cc_.css == 0 && cc_.ams <= 1 && cc_.mps <= params_.mpsmax && asqs >= 2 && acqs >= 2 &&
                     asqs <= params_.queue_depth && acqs <= params_.queue_depth && asq_ != 0 && acq_ != 0 &&
                     asq_ % memory_page().value == 0 && acq_ % memory_page().value == 0;
  csts_ = {};
  if (!valid) {
    csts_.cfs = true;
    return {};
  }
  const QueueId admin{0};
  sqs_[0] = std::make_unique<SubmissionQueue>(admin, admin, PhysicalAddress{asq_}, asqs);
  cqs_[0] = std::make_unique<CompletionQueue>(admin, PhysicalAddress{acq_}, acqs, InterruptVector{0}, true);
  cqs_[0]->attach();
  csts_.rdy = true;
  return {.kind = RegisterEffect::Kind::enabled};
}

void ControllerCore::finish_reset() {
  clear();
  csts_ = {};
  resetting_ = false;
  if (cc_.en) enable();
}

void ControllerCore::finish_shutdown() { csts_.shst = ShutdownStatus::complete; }

RegisterEffect ControllerCore::ring_doorbell(std::uint64_t offset, std::uint32_t value) {
  const unsigned shift = 2u + params_.dstrd;
  const std::uint64_t index = (offset - reg::doorbells) >> shift;
  const std::uint64_t id = index / 2;
  if (index << shift != offset - reg::doorbells || id >= sqs_.size()) {
    refuse_doorbell(false);
    return {};
  }
  const QueueId queue{static_cast<std::uint16_t>(id)};
  if (index % 2 == 1) {
    if (ring_completion_queue(queue, value)) return {RegisterEffect::Kind::cq_head, queue};
  } else if (const std::uint32_t entries = ring_submission_queue(queue, value); entries != 0) {
    return {RegisterEffect::Kind::sq_tail, queue, entries};
  }
  return {};
}

/// `known`: the register is there, its value is wrong.
void ControllerCore::refuse_doorbell(bool known) {
  ++(known ? stats_.invalid_doorbell_value : stats_.invalid_doorbell_register);
  if (accepts_doorbells()) events_.note_doorbell(known);
}

}  // namespace csdsim::nvme
