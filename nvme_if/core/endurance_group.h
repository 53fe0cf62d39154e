// Flexible Data Placement: the endurance group, its placement identifiers, events and log pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "nvme_if/core/io_command.h"
#include "nvme_if/spec/fdp.h"

namespace csdsim::nvme {

/// Reclaim units that a placement identifier can name at most: every placement handle in every reclaim group. So many
/// an I/O Management Send may carry.
std::uint32_t most_placement_identifiers(const FdpParams& params);

/// UserError for values out of range, or more handles and groups than identifiers of 16 bits can name.
void validate(const FdpParams& params);

/// Bytes that the drive counts since the simulation began.
struct FdpCounts {
  std::uint64_t host_written = 0;
  std::uint64_t media_written = 0;
  std::uint64_t media_erased = 0;
};

/// The endurance group 1 of a drive. A placement identifier has the reclaim group in its upper RGIF bits, and below
/// them a placement handle: an index into the list of reclaim unit handles that the namespace was created with.
///
/// Settings of the host survive resets and losses of power.
class EnduranceGroup {
 public:
  static constexpr std::uint16_t kId = 1;

  /// UserError as validate(). The namespace exists, with the placement handles of `params`.
  explicit EnduranceGroup(const FdpParams& params);

  /// Optional source of the time and of the drive's counts; without it both are 0.
  struct Sources {
    std::function<SimTime()> now;
    std::function<FdpCounts()> counts;
  };
  void connect(Sources sources) { sources_ = std::move(sources); }

  FdpCounts counts() const { return sources_.counts ? sources_.counts() : FdpCounts{}; }

  const FdpParams& params() const { return params_; }
  bool enabled() const { return enabled_; }
  std::uint32_t group_bits() const;
  /// DW0 of Get Features fdp.
  std::uint32_t config() const { return fdp_config(enabled_, 0); }
  /// Set Features fdp, CDW12. Precondition: the group has no namespace. invalid_field for a configuration that is not
  /// there.
  Status configure(std::uint32_t config);

  /// A namespace is created with this list; empty: the drive chooses. invalid_placement_list for handles that are not
  /// there or are named twice.
  Status create_namespace(std::span<const std::uint16_t> handles);
  void delete_namespace();
  const std::vector<std::uint16_t>& placement_handles() const { return list_; }

  struct Target {
    std::uint16_t handle = 0;  ///< reclaim unit handle
    std::uint16_t reclaim_group = 0;
  };
  /// Nothing for an identifier that names no reclaim unit.
  std::optional<Target> target(std::uint16_t identifier) const;
  std::uint16_t identifier(std::uint32_t placement_handle, std::uint32_t reclaim_group) const;
  /// Says where a write goes. One without a directive, or with an invalid identifier, goes by placement handle 0 to a
  /// reclaim group of the drive's choice; the second is an event. invalid_field for a directive that is not enabled.
  Status place(const SubmissionEntry& sqe, BlockWrite& write);

  /// The types of events that the placement handle keeps; attributes bit 0.
  std::vector<FdpEventDescriptor> events_of(std::uint16_t placement_handle) const;
  /// invalid_field for a placement handle or a type that is not there.
  Status keep_events(std::uint16_t placement_handle, std::span<const FdpEventType> types, bool keep);
  /// Whether one of the namespace's placement handles that is this reclaim unit handle keeps such events.
  bool keeps(FdpEventType type, std::uint16_t handle) const;
  /// Notes an event of a reclaim unit handle, if it is kept. The oldest of its kind goes where the log is full.
  void note(FdpEvent event, Target target);

  /// The power is back after it failed: the reclaim units that were open are closed, and each handle has a new one.
  void note_power_on();

  /// A log page of the endurance group; nothing for others. `host_events`: which of the events.
  std::optional<std::vector<std::byte>> log(std::uint8_t page, bool host_events, bool volatile_cache) const;

 private:
  std::optional<std::uint16_t> placement_handle_of(std::uint16_t handle) const;
  std::vector<std::byte> configurations(bool volatile_cache) const;

  FdpParams params_;
  bool enabled_;
  bool by_host_ = true;                     ///< the namespace's list was specified by the host
  std::vector<std::uint16_t> list_;         ///< reclaim unit handle of each placement handle
  std::vector<std::uint32_t> kept_events_;  ///< by placement handle: a bit for each type, in the order of kEventTypes
  bool written_since_on_ = false;
  std::deque<FdpEvent> host_events_, controller_events_;
  FdpCounts enabled_at_;
  Sources sources_;
};

}  // namespace csdsim::nvme
