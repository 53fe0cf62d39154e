#include "nvme_if/core/controller_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/rng.h"
#include "nvme_if/core/wire.h"
#include "nvme_if/spec/feed_forward_command.h"
#include "nvme_if/spec/identify.h"
#include "nvme_if/spec/sgl.h"

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
  if (params_.fdp) fdp_ = std::make_unique<FdpAdmin>(params_);
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
  if (params_.volatile_cache) features_[feature::volatile_write_cache] = kWriteCacheEnabled;
  events_.reset();
}

std::uint32_t ControllerCore::read_dword(std::uint64_t offset) const {
  switch (offset) {
    case reg::cap:
      return static_cast<std::uint32_t>(cap_.encode());
    case reg::cap + 4:
      return static_cast<std::uint32_t>(cap_.encode() >> 32);
    case reg::vs:
      return fdp_ != nullptr ? kVersion_2_0 : kVersion_1_4;
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

void ControllerCore::lose_power() {
  events_.note_power_loss(csts_.shst == ShutdownStatus::complete);
  clear();
  cc_ = {};
  csts_ = {};
  resetting_ = false;
  aqa_ = 0;
  asq_ = acq_ = 0;
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

namespace {

void copy_text(std::span<char> out, const std::string& text) {
  std::ranges::fill(out, ' ');
  std::copy_n(text.begin(), std::min(text.size(), out.size()), out.begin());
}

std::uint8_t log2_of(std::uint64_t v) { return static_cast<std::uint8_t>(std::bit_width(v) - 1); }

/// A name with a UUID (NVMe Base Specification 1.4, section 7.9) that is derived from serial number and model: that of
/// a name-based UUID, version 8 of RFC 9562.
std::string subsystem_name(const ControllerParams& p) {
  const std::uint64_t high = fnv1a64(p.serial), low = fnv1a64(p.model + p.serial);
  return fmt::format("nqn.2014-08.org.nvmexpress:uuid:{:08x}-{:04x}-8{:03x}-{:04x}-{:012x}", high >> 32,
                     (high >> 16) & 0xFFFF, high & 0xFFF, 0x8000 | ((low >> 48) & 0x3FFF), low & 0xFFFF'FFFF'FFFF);
}

IdentifyController identify_controller(const ControllerParams& p) {
  IdentifyController id;
  copy_text(id.sn, p.serial);
  copy_text(id.mn, p.model);
  copy_text(id.fr, p.firmware);
  id.mdts = log2_of(p.mdts.value / 4096);
  id.ver = kVersion_1_4;
  id.aerl = kAsyncEventRequests - 1;
  id.frmw = 1 | 1u << 1;
  id.elpe = kErrorLogEntries - 1;
  id.sqes = 0x66;
  id.cqes = 0x44;
  id.nn = 1;
  id.oncs = 1u << 2;
  id.vwc = kFlushesAllNamespaces | (p.volatile_cache ? 1 : 0);
  id.kv_magic = p.kv_commands ? kKvMagic : 0;
  id.kv_version = p.kv_commands ? kKvVersion : 0;
  id.sgls = kSglsDword;
  std::ranges::copy(subsystem_name(p), id.subnqn.begin());
  id.feed_forward_version = p.feed_forward ? kFeedForwardVersion : 0;
  return id;
}

IdentifyNamespace identify_namespace(const ControllerParams& p) {
  IdentifyNamespace ns;
  ns.nsze = ns.ncap = ns.nuse = p.namespace_blocks;
  ns.lbaf[0].lbads = log2_of(p.block_size.value);
  return ns;
}

/// Namespace Identification Descriptor list with an EUI-64 that is derived from the serial number.
std::array<std::uint8_t, 4096> namespace_descriptors(const ControllerParams& p) {
  const std::uint64_t eui = fnv1a64(p.serial);
  std::array<std::uint8_t, 4096> list{};
  list[0] = 1;  // NIDT: EUI-64
  list[1] = 8;  // NIDL
  std::memcpy(&list[4], &eui, 8);
  return list;
}

}  // namespace

AdminResult ControllerCore::execute_admin(const SubmissionEntry& sqe) {
  ++stats_.admin_commands;
  if ((sqe.flags & 0xC3u) != 0) return refuse(status::invalid_field);
  if (fdp_ != nullptr)
    if (std::optional<AdminResult> result = fdp_->execute(sqe)) return std::move(*result);
  switch (sqe.opcode) {
    case admin_opcode::identify:
      return identify(sqe);
    case admin_opcode::create_io_cq:
      return {.status = create_io_cq(sqe)};
    case admin_opcode::create_io_sq:
      return {.status = create_io_sq(sqe)};
    case admin_opcode::delete_io_cq:
      return {.status = delete_io_cq(sqe)};
    case admin_opcode::delete_io_sq:
      return delete_io_sq(sqe);
    case admin_opcode::get_features:
      return get_features(sqe);
    case admin_opcode::set_features:
      return set_features(sqe);
    case admin_opcode::get_log_page:
      return get_log_page(sqe);
    case admin_opcode::async_event_request:
      return {.action = AdminResult::Action::hold};
    case admin_opcode::abort:
      return {
          .action = AdminResult::Action::abort, .queue = QueueId{low(sqe.cdw10)}, .cid = CommandId{high(sqe.cdw10)}};
    default:
      return refuse(status::invalid_opcode);
  }
}

AdminResult ControllerCore::execute_with_data(const SubmissionEntry& sqe, std::span<const std::byte> data) {
  return fdp_->execute_with_data(sqe, data);
}

/// With Flexible Data Placement: says where a write goes, and what I/O Management asks.
Status ControllerCore::place(const SubmissionEntry& sqe, IoCommand& command) {
  EnduranceGroup& group = fdp_->group();
  if (auto* const write = std::get_if<BlockWrite>(&command.operation)) return group.place(sqe, *write);
  if (auto* const unit = std::get_if<ReclaimUnitStatus>(&command.operation)) {
    unit->group = &group;
    return group.enabled() || !unit->asked ? status::success : status::fdp_disabled;
  }
  if (auto* const update = std::get_if<ReclaimUnitUpdate>(&command.operation)) {
    update->group = &group;
    return group.enabled() || update->identifiers == 0 ? status::success : status::fdp_disabled;
  }
  return status::success;
}

AdminResult ControllerCore::identify(const SubmissionEntry& sqe) const {
  switch (sqe.cdw10 & 0xFF) {
    case cns::identify_controller: {
      IdentifyController id = identify_controller(params_);
      if (fdp_ != nullptr) fdp_->complete(id);
      return send(id);
    }
    case cns::identify_namespace:
      // The broadcast value asks for what all namespaces have in common.
      if (sqe.nsid != 1 && sqe.nsid != kAllNamespaces) return refuse(status::invalid_namespace);
      {
        IdentifyNamespace id = identify_namespace(params_);
        if (fdp_ != nullptr) fdp_->complete(id);
        return send(id);
      }
    case cns::active_namespaces: {
      if (sqe.nsid >= 0xFFFF'FFFEu) return refuse(status::invalid_namespace);
      std::array<std::uint32_t, 1024> list{};
      if (sqe.nsid < 1) list[0] = 1;
      return send(list);
    }
    case cns::namespace_descriptors:
      if (sqe.nsid != 1) return refuse(status::invalid_namespace);
      return send(namespace_descriptors(params_));
    default:
      return refuse(status::invalid_field);
  }
}

namespace {

std::uint64_t log_dwords(const SubmissionEntry& sqe) {
  return (std::uint64_t{high(sqe.cdw10)} | std::uint64_t{low(sqe.cdw11)} << 16) + 1;
}

}  // namespace

AdminResult ControllerCore::get_log_page(const SubmissionEntry& sqe) const {
  // Pages of a single namespace are not offered, and offsets only with Flexible Data Placement: see LPA.
  if ((sqe.cdw12 | sqe.cdw13) != 0 && (fdp_ == nullptr || sqe.cdw12 % 4 != 0 || sqe.cdw13 != 0))
    return refuse(status::invalid_field);
  if (sqe.nsid != 0 && sqe.nsid != kAllNamespaces) return refuse(status::invalid_field);
  if (log_dwords(sqe) * 4 > params_.mdts.value) return refuse(status::invalid_field);
  return {.action = AdminResult::Action::log_page};
}

std::optional<std::vector<std::byte>> ControllerCore::read_log(const SubmissionEntry& sqe, const DriveHealth& health,
                                                               SimTime now) {
  if (fdp_ != nullptr) return read_fdp_log(sqe, health, now);
  return events_.read(static_cast<std::uint8_t>(sqe.cdw10), static_cast<std::uint32_t>(log_dwords(sqe)),
                      (sqe.cdw10 & kRetainAsyncEvent) != 0, health, now);
}

/// The same from an offset of the page on, also of the pages that only such a controller has. Beyond the page there are
/// zeros.
std::optional<std::vector<std::byte>> ControllerCore::read_fdp_log(const SubmissionEntry& sqe,
                                                                   const DriveHealth& health, SimTime now) {
  constexpr std::uint32_t kLongest = 4096;  // longest page of other controllers
  const auto page = static_cast<std::uint8_t>(sqe.cdw10);
  std::optional<std::vector<std::byte>> whole = fdp_->log(sqe);
  if (page == log_page::endurance_group) {
    const auto smart = events_.read(log_page::smart, sizeof(SmartLog) / 4, true, health, now);
    whole = fdp_->endurance_log(from_bytes<SmartLog>(*smart));
  }
  if (!whole) whole = events_.read(page, kLongest / 4, (sqe.cdw10 & kRetainAsyncEvent) != 0, health, now);
  if (!whole) return std::nullopt;
  const std::size_t offset = std::min<std::size_t>(sqe.cdw12, whole->size());
  whole->erase(whole->begin(), whole->begin() + static_cast<std::ptrdiff_t>(offset));
  whole->resize(log_dwords(sqe) * 4);
  return whole;
}

Status ControllerCore::check_new_queue(const SubmissionEntry& sqe, bool exists) const {
  const std::uint16_t id = low(sqe.cdw10);
  const std::uint32_t entries = std::uint32_t{high(sqe.cdw10)} + 1;
  if (id == 0 || id > granted_queues_ || exists) return status::invalid_queue_id;
  if (entries < 2 || entries > params_.queue_depth) return status::invalid_queue_size;
  // CC.IOSQES and CC.IOCQES must have been set before.
  if (cc_.iosqes != 6 || cc_.iocqes != 4) return status::invalid_queue_size;
  if ((sqe.cdw11 & 1) == 0) return status::invalid_field;  // not physically contiguous, CAP.CQR is set
  if (sqe.prp1 == 0) return status::invalid_field;
  if (sqe.prp1 % memory_page().value != 0) return status::prp_offset_invalid;
  return status::success;
}

Status ControllerCore::create_io_cq(const SubmissionEntry& sqe) {
  const QueueId id{low(sqe.cdw10)};
  if (const Status s = check_new_queue(sqe, cq(id) != nullptr); !s.ok()) return s;
  const InterruptVector vector{high(sqe.cdw11)};
  if (vector.value >= queue_limit()) return status::invalid_interrupt_vector;
  cqs_[id.value] = std::make_unique<CompletionQueue>(id, PhysicalAddress{sqe.prp1}, std::uint32_t{high(sqe.cdw10)} + 1,
                                                     vector, (sqe.cdw11 & 2) != 0);
  return status::success;
}

Status ControllerCore::create_io_sq(const SubmissionEntry& sqe) {
  const QueueId id{low(sqe.cdw10)};
  if (const Status s = check_new_queue(sqe, sq(id) != nullptr); !s.ok()) return s;
  const QueueId completion{high(sqe.cdw11)};
  if (completion.value == 0 || completion.value > granted_queues_) return status::invalid_queue_id;
  if (cq(completion) == nullptr) return status::completion_queue_invalid;
  sqs_[id.value] =
      std::make_unique<SubmissionQueue>(id, completion, PhysicalAddress{sqe.prp1}, std::uint32_t{high(sqe.cdw10)} + 1,
                                        static_cast<QueuePriority>((sqe.cdw11 >> 1) & 3));
  cq(completion)->attach();
  return status::success;
}

Status ControllerCore::delete_io_cq(const SubmissionEntry& sqe) {
  const QueueId id{low(sqe.cdw10)};
  if (id.value == 0 || cq(id) == nullptr) return status::invalid_queue_id;
  if (cq(id)->attached() != 0) return status::invalid_queue_deletion;
  cqs_[id.value].reset();
  return status::success;
}

AdminResult ControllerCore::delete_io_sq(const SubmissionEntry& sqe) {
  const QueueId id{low(sqe.cdw10)};
  if (id.value == 0 || sq(id) == nullptr || sq(id)->deleting()) return refuse(status::invalid_queue_id);
  sq(id)->start_deletion();
  return {.action = AdminResult::Action::delete_sq, .queue = id};
}

void ControllerCore::finish_sq_deletion(QueueId id) {
  if (sq(id) == nullptr || sq(id)->outstanding() != 0)
    throw InternalError("submission queue deleted while commands are outstanding");
  cq(sq(id)->completion_queue())->detach();
  sqs_[id.value].reset();
}

bool ControllerCore::any_io_queue() const {
  const auto present = [](const auto& q) { return q != nullptr; };
  return std::any_of(sqs_.begin() + 1, sqs_.end(), present) || std::any_of(cqs_.begin() + 1, cqs_.end(), present);
}

namespace {

bool is_known_feature(std::uint8_t fid, bool volatile_cache) {
  return fid == feature::arbitration || fid == feature::power_management || fid == feature::temperature_threshold ||
         fid == feature::error_recovery || (fid == feature::volatile_write_cache && volatile_cache) ||
         (fid >= feature::number_of_queues && fid <= feature::async_event_configuration);
}

}  // namespace

AdminResult ControllerCore::get_features(const SubmissionEntry& sqe) const {
  const auto fid = static_cast<std::uint8_t>(sqe.cdw10);
  const std::uint32_t select = (sqe.cdw10 >> 8) & 7;
  // Saved values and capabilities are not offered: ONCS bit 4 is 0.
  if (!is_known_feature(fid, params_.volatile_cache) || select > 1) return refuse(status::invalid_field);
  const auto pair = [](std::uint32_t queues) { return (queues - 1) | ((queues - 1) << 16); };
  if (fid == feature::number_of_queues) return {.dw0 = pair(select == 1 ? params_.io_queues : granted_queues_)};
  if (select == 1) return {.dw0 = fid == feature::volatile_write_cache ? kWriteCacheEnabled : 0};
  return {.dw0 = features_[fid]};
}

AdminResult ControllerCore::set_features(const SubmissionEntry& sqe) {
  const auto fid = static_cast<std::uint8_t>(sqe.cdw10);
  if (!is_known_feature(fid, params_.volatile_cache)) return refuse(status::invalid_field);
  if ((sqe.cdw10 >> 31) != 0) return refuse(status::feature_not_saveable);
  if (fid == feature::number_of_queues) {
    if (any_io_queue()) return refuse(status::command_sequence_error);
    if (low(sqe.cdw11) == 0xFFFF || high(sqe.cdw11) == 0xFFFF) return refuse(status::invalid_field);
    // Queues come in pairs here: the larger request decides.
    const std::uint32_t wanted = std::max<std::uint32_t>(low(sqe.cdw11), high(sqe.cdw11)) + 1;
    granted_queues_ = static_cast<std::uint16_t>(std::min<std::uint32_t>(wanted, params_.io_queues));
    return {.dw0 = (granted_queues_ - 1u) | ((granted_queues_ - 1u) << 16)};
  }
  if (fid == feature::write_atomicity) {
    // The atomic unit is one logical block, whatever the host asks for.
    if (sqe.cdw11 != 0) return refuse(status::feature_not_changeable);
    return {};
  }
  if (fid == feature::volatile_write_cache) {
    const bool was_enabled = write_cache_enabled();
    features_[fid] = sqe.cdw11 & kWriteCacheEnabled;
    if (was_enabled && !write_cache_enabled()) return {.action = AdminResult::Action::drain};
    return {};
  }
  features_[fid] = sqe.cdw11;
  return {};
}

}  // namespace csdsim::nvme
