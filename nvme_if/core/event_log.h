// A controller's log of errors and health, and the events that it sends to the host.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nvme_if/spec/command.h"
#include "nvme_if/spec/log_page.h"

namespace csdsim::nvme {

/// The health of the flash, as the drive behind the controller reports it.
struct DriveHealth {
  double spare = 1;  ///< share of the spare blocks that is left, of the plane with the fewest
  double used = 0;   ///< share of the rated cycles that the mean block has behind it
  bool read_only = false;
};

/// The log pages, and the queue of events. An event of a type is told once; further ones of the type wait until the
/// host has read the log page of the last one.
class EventLog {
 public:
  explicit EventLog(std::string firmware) : firmware_(std::move(firmware)) {}

  /// A command ended with an error.
  void note_error(const SubmissionEntry& sqe, std::uint16_t queue, Status status);
  /// A block command was executed.
  void note_blocks(bool write, Bytes bytes) {
    ++(write ? writes_ : reads_);
    (write ? written_ : read_) += bytes;
  }
  /// The host wrote to a doorbell that does not exist (`known` false), or a value that it must not have.
  void note_doorbell(bool known);
  /// Queues events for what `enabled` (bits of critical_warning) asks for and the health says for the first time.
  void note_health(const DriveHealth& health, std::uint8_t enabled);

  /// `dwords` of a page; nothing for a page that does not exist. Unless `retain`, events of the page's type may follow.
  std::optional<std::vector<std::byte>> read(std::uint8_t page, std::uint32_t dwords, bool retain,
                                             const DriveHealth& health, SimTime now);

  /// DW0 of the next event, which is taken from the queue; nothing while there is none to tell.
  std::optional<std::uint32_t> next_event();
  /// The power has failed; `told`: after a shutdown that the host had asked for.
  void note_power_loss(bool told) {
    ++power_cycles_;
    if (!told) ++unsafe_shutdowns_;
  }
  std::uint64_t unsafe_shutdowns() const { return unsafe_shutdowns_; }
  /// A controller reset forgets events, and keeps the pages.
  void reset();

 private:
  SmartLog smart(const DriveHealth& health, SimTime now) const;

  std::string firmware_;
  std::deque<ErrorLogEntry> errors_;  ///< the newest first
  std::uint64_t error_count_ = 0;
  std::uint64_t media_errors_ = 0;
  std::uint64_t power_cycles_ = 1;
  std::uint64_t unsafe_shutdowns_ = 0;
  std::uint64_t reads_ = 0, writes_ = 0;
  Bytes read_, written_;
  std::deque<std::uint32_t> events_;
  std::set<std::uint8_t> masked_;  ///< types whose last event has not been read
  std::uint8_t warned_ = 0;        ///< bits of critical_warning that events were queued for
};

}  // namespace csdsim::nvme
