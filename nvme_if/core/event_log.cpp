#include "nvme_if/core/event_log.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "nvme_if/core/wire.h"

namespace csdsim::nvme {

namespace {

/// Spare blocks of which so few are left are a warning.
constexpr std::uint8_t kSpareThreshold = 10;

std::uint8_t percent(double share, double most) {
  return static_cast<std::uint8_t>(std::min(std::floor(share * 100 + 1e-9), most));
}

std::uint8_t warnings(const DriveHealth& health) {
  std::uint8_t bits = 0;
  if (percent(health.spare, 100) < kSpareThreshold) bits |= critical_warning::spare_below_threshold;
  if (health.read_only) bits |= critical_warning::read_only;
  return bits;
}

}  // namespace

void EventLog::note_error(const SubmissionEntry& sqe, std::uint16_t queue, Status status) {
  if (status == status::unrecovered_read_error) ++media_errors_;
  const bool blocks = queue != 0 && (sqe.opcode == nvm_opcode::read || sqe.opcode == nvm_opcode::write);
  errors_.push_front({.error_count = ++error_count_,
                      .sqid = queue,
                      .cid = sqe.cid,
                      .status = encode_status(status, false),
                      .lba = blocks ? sqe.cdw10 | std::uint64_t{sqe.cdw11} << 32 : 0,
                      .nsid = sqe.nsid});
  if (errors_.size() > kErrorLogEntries) errors_.pop_back();
}

void EventLog::note_doorbell(bool known) {
  const std::uint32_t event = async_event(
      AsyncEventType::error, known ? async_error::invalid_doorbell_value : async_error::invalid_doorbell_register,
      log_page::error_information);
  if (std::ranges::find(events_, event) == events_.end()) events_.push_back(event);
}

void EventLog::note_health(const DriveHealth& health, std::uint8_t enabled) {
  const auto fresh = static_cast<std::uint8_t>(warnings(health) & enabled & ~warned_);
  warned_ |= fresh;
  if ((fresh & critical_warning::spare_below_threshold) != 0)
    events_.push_back(async_event(AsyncEventType::smart, async_smart::spare_below_threshold, log_page::smart));
  if ((fresh & critical_warning::read_only) != 0)
    events_.push_back(async_event(AsyncEventType::smart, async_smart::reliability, log_page::smart));
}

SmartLog EventLog::smart(const DriveHealth& health, SimTime now) const {
  const auto units = [](Bytes bytes) { return WideCount{(bytes.value + 511'999) / 512'000}; };
  SmartLog log;
  log.critical_warning = warnings(health);
  log.available_spare = percent(health.spare, 100);
  log.spare_threshold = kSpareThreshold;
  log.percentage_used = percent(health.used, 255);
  log.data_units_read = units(read_);
  log.data_units_written = units(written_);
  log.host_reads = {reads_};
  log.host_writes = {writes_};
  log.power_cycles = {power_cycles_};
  log.unsafe_shutdowns = {unsafe_shutdowns_};
  log.power_on_hours = {static_cast<std::uint64_t>(now.seconds() / 3600)};
  log.media_errors = {media_errors_};
  log.error_entries = {error_count_};
  return log;
}

std::optional<std::vector<std::byte>> EventLog::read(std::uint8_t page, std::uint32_t dwords, bool retain,
                                                     const DriveHealth& health, SimTime now) {
  std::vector<std::byte> content;
  switch (page) {
    case log_page::error_information:
      for (const ErrorLogEntry& entry : errors_) put(content, entry);
      while (content.size() < kErrorLogEntries * sizeof(ErrorLogEntry)) put(content, ErrorLogEntry{});
      if (!retain) masked_.erase(static_cast<std::uint8_t>(AsyncEventType::error));
      break;
    case log_page::smart:
      put(content, smart(health, now));
      if (!retain) masked_.erase(static_cast<std::uint8_t>(AsyncEventType::smart));
      break;
    case log_page::firmware_slots: {
      FirmwareSlots slots;
      std::ranges::fill(slots.slot_1, ' ');
      std::copy_n(firmware_.begin(), std::min(firmware_.size(), slots.slot_1.size()), slots.slot_1.begin());
      put(content, slots);
      break;
    }
    default:
      return std::nullopt;
  }
  content.resize(std::size_t{dwords} * 4);  // what a host asks for beyond the page reads 0
  return content;
}

std::optional<std::uint32_t> EventLog::next_event() {
  const auto next = std::ranges::find_if(events_, [&](std::uint32_t event) { return !masked_.contains(event & 0x7); });
  if (next == events_.end()) return std::nullopt;
  const std::uint32_t event = *next;
  events_.erase(next);
  masked_.insert(event & 0x7);
  return event;
}

void EventLog::reset() {
  events_.clear();
  masked_.clear();
  warned_ = 0;
}

}  // namespace csdsim::nvme
