#include "nvme_if/core/endurance_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "nvme_if/core/wire.h"

namespace csdsim::nvme {
namespace {

/// What can happen in this drive. Reclaim units have no time limit.
constexpr std::array kEventTypes{FdpEventType::unit_not_full, FdpEventType::reset_changed_handles,
                                 FdpEventType::invalid_identifier, FdpEventType::media_reallocated,
                                 FdpEventType::handle_changed};

std::uint32_t bit_of(FdpEventType type) {
  const auto known = std::ranges::find(kEventTypes, type);
  return known == kEventTypes.end() ? 0 : 1u << (known - kEventTypes.begin());
}

/// Bits that tell `values` values apart.
std::uint32_t bits_for(std::uint32_t values) { return static_cast<std::uint32_t>(std::bit_width(values - 1)); }

std::vector<std::uint16_t> all_handles(const FdpParams& params) {
  std::vector<std::uint16_t> all(params.handles);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  return all;
}

bool is_list(const FdpParams& params, std::span<const std::uint16_t> handles) {
  std::vector<std::uint16_t> sorted(handles.begin(), handles.end());
  std::ranges::sort(sorted);
  return sorted.size() <= kMostPlacementHandles && std::ranges::adjacent_find(sorted) == sorted.end() &&
         (sorted.empty() || sorted.back() < params.handles);
}

}  // namespace

std::uint32_t most_placement_identifiers(const FdpParams& params) {
  return std::min<std::uint32_t>(std::uint32_t{params.handles} * params.reclaim_groups, 65'536);
}

void validate(const FdpParams& p) {
  if (p.handles < 1 || p.handles > kMostPlacementHandles)
    throw UserError(
        fmt::format("NVMe controller: fdp.handles is {}, must be 1 to {}", p.handles, kMostPlacementHandles));
  if (p.reclaim_groups < 1 || bits_for(p.reclaim_groups) > 15 || bits_for(p.reclaim_groups) + bits_for(p.handles) > 16)
    throw UserError(
        fmt::format("NVMe controller: {} reclaim groups and {} handles are more than placement identifiers "
                    "of 16 bits can name",
                    p.reclaim_groups, p.handles));
  if (!is_list(p, p.placement_handles))
    throw UserError("NVMe controller: fdp.placement_handles names a handle twice, or one that is not there");
}

EnduranceGroup::EnduranceGroup(const FdpParams& params) : params_(params), enabled_(params.enabled) {
  validate(params);
  if (enabled_ &&
      !create_namespace(params.placement_handles.empty() ? all_handles(params) : params.placement_handles).ok())
    throw InternalError("a checked list of placement handles is refused");
}

std::uint32_t EnduranceGroup::group_bits() const { return bits_for(params_.reclaim_groups); }

Status EnduranceGroup::configure(std::uint32_t config) {
  const bool enable = (config & 1) != 0;
  if (enable && (config >> 8 & 0xFF) != 0) return status::invalid_field;
  if (enable && !enabled_) enabled_at_ = counts();
  enabled_ = enable;
  host_events_.clear();
  controller_events_.clear();
  return status::success;
}

Status EnduranceGroup::create_namespace(std::span<const std::uint16_t> handles) {
  if (!is_list(params_, handles)) return status::invalid_placement_list;
  by_host_ = !handles.empty();
  list_.assign(handles.begin(), handles.end());
  if (list_.empty()) list_.push_back(0);
  kept_events_.assign(list_.size(), 0);
  return status::success;
}

void EnduranceGroup::delete_namespace() {
  list_.clear();
  kept_events_.clear();
}

std::uint16_t EnduranceGroup::identifier(std::uint32_t placement_handle, std::uint32_t reclaim_group) const {
  return static_cast<std::uint16_t>((reclaim_group << (16 - group_bits())) | placement_handle);
}

std::optional<EnduranceGroup::Target> EnduranceGroup::target(std::uint16_t identifier) const {
  const std::uint32_t below = 16 - group_bits(), group = std::uint32_t{identifier} >> below;
  const std::uint32_t placement_handle = identifier & ((1u << below) - 1);
  if (group >= params_.reclaim_groups || placement_handle >= list_.size()) return std::nullopt;
  return Target{list_[placement_handle], static_cast<std::uint16_t>(group)};
}

Status EnduranceGroup::place(const SubmissionEntry& sqe, BlockWrite& write) {
  const std::uint8_t type = directive_type(sqe.cdw12);
  if (type != directive::none && !(enabled_ && type == directive::data_placement)) return status::invalid_field;
  if (!enabled_) return status::success;
  written_since_on_ = true;
  write.handle = list_.front();
  if (type == directive::none) return status::success;
  const std::uint16_t identifier = high(sqe.cdw13);
  if (const auto named = target(identifier)) {
    write.handle = named->handle;
    write.reclaim_group = named->reclaim_group;
    return status::success;
  }
  note({.type = FdpEventType::invalid_identifier,
        .flags = fdp_event_flag::identifier_valid | fdp_event_flag::namespace_valid,
        .identifier = identifier,
        .nsid = sqe.nsid},
       {write.handle, 0});
  return status::success;
}

std::optional<std::uint16_t> EnduranceGroup::placement_handle_of(std::uint16_t handle) const {
  const auto at = std::ranges::find(list_, handle);
  if (at == list_.end()) return std::nullopt;
  return static_cast<std::uint16_t>(at - list_.begin());
}

std::vector<FdpEventDescriptor> EnduranceGroup::events_of(std::uint16_t placement_handle) const {
  std::vector<FdpEventDescriptor> events;
  for (const FdpEventType type : kEventTypes)
    events.push_back(
        {type, static_cast<std::uint8_t>((kept_events_.at(placement_handle) & bit_of(type)) != 0 ? 1 : 0)});
  return events;
}

Status EnduranceGroup::keep_events(std::uint16_t placement_handle, std::span<const FdpEventType> types, bool keep) {
  if (placement_handle >= kept_events_.size()) return status::invalid_field;
  std::uint32_t bits = 0;
  for (const FdpEventType type : types) {
    if (bit_of(type) == 0) return status::invalid_field;
    bits |= bit_of(type);
  }
  std::uint32_t& kept = kept_events_[placement_handle];
  kept = keep ? kept | bits : kept & ~bits;
  return status::success;
}

bool EnduranceGroup::keeps(FdpEventType type, std::uint16_t handle) const {
  const auto placement_handle = placement_handle_of(handle);
  return enabled_ && placement_handle && (kept_events_[*placement_handle] & bit_of(type)) != 0;
}

void EnduranceGroup::note(FdpEvent event, Target target) {
  if (!keeps(event.type, target.handle)) return;
  event.reclaim_group = target.reclaim_group;
  event.handle = static_cast<std::uint8_t>(target.handle);
  event.flags |= fdp_event_flag::location_valid;
  if ((event.flags & fdp_event_flag::identifier_valid) == 0) {
    event.identifier = identifier(*placement_handle_of(target.handle), target.reclaim_group);
    event.flags |= fdp_event_flag::identifier_valid;
  }
  constexpr std::int64_t kMillisecond = SimTime::milliseconds(1).ps;
  if (sources_.now) event.timestamp = static_cast<std::uint64_t>(sources_.now().ps / kMillisecond);
  std::deque<FdpEvent>& log = is_host_event(event.type) ? host_events_ : controller_events_;
  if (log.size() == kFdpEvents) log.pop_front();
  log.push_back(event);
}

void EnduranceGroup::note_power_on() {
  if (!std::exchange(written_since_on_, false)) return;
  for (const std::uint16_t handle : list_)
    note({.type = FdpEventType::reset_changed_handles, .flags = fdp_event_flag::namespace_valid, .nsid = 1},
         {handle, 0});
}

std::vector<std::byte> EnduranceGroup::configurations(bool volatile_cache) const {
  const std::size_t size = sizeof(FdpConfigurationDescriptor) + params_.handles * sizeof(ReclaimUnitHandleDescriptor);
  FdpConfigurationDescriptor config;
  config.size = static_cast<std::uint16_t>((size + 7) / 8 * 8);
  config.attributes = static_cast<std::uint8_t>(group_bits() | (volatile_cache ? kFdpVolatileCache : 0) | kFdpValid);
  config.reclaim_groups = params_.reclaim_groups;
  config.handles = params_.handles;
  config.most_identifiers = static_cast<std::uint16_t>(most_placement_identifiers(params_) - 1);
  config.namespaces = 1;
  config.unit_bytes = params_.unit.value;
  FdpConfigurations header;
  header.size = static_cast<std::uint32_t>(sizeof header + config.size);
  std::vector<std::byte> page;
  put(page, header);
  put(page, config);
  for (std::uint32_t handle = 0; handle < params_.handles; ++handle)
    put(page, ReclaimUnitHandleDescriptor{.type = static_cast<std::uint8_t>(params_.persistently_isolated ? 2 : 1)});
  page.resize(header.size);
  return page;
}

std::optional<std::vector<std::byte>> EnduranceGroup::log(std::uint8_t page, bool host_events,
                                                          bool volatile_cache) const {
  std::vector<std::byte> out;
  switch (page) {
    case log_page::fdp_configurations:
      return configurations(volatile_cache);
    case log_page::reclaim_unit_handle_usage: {
      put(out, ReclaimUnitHandleUsage{.handles = params_.handles});
      for (std::uint16_t handle = 0; handle < params_.handles; ++handle) {
        const bool used = enabled_ && placement_handle_of(handle);
        put(out, ReclaimUnitHandleUse{.attributes = static_cast<std::uint8_t>(!used ? 0 : by_host_ ? 1 : 2)});
      }
      return out;
    }
    case log_page::fdp_statistics: {
      const FdpCounts now = counts();
      put(out, FdpStatistics{.host_written = {now.host_written - enabled_at_.host_written},
                             .media_written = {now.media_written - enabled_at_.media_written},
                             .media_erased = {now.media_erased - enabled_at_.media_erased}});
      return out;
    }
    case log_page::fdp_events: {
      const std::deque<FdpEvent>& events = host_events ? host_events_ : controller_events_;
      put(out, FdpEvents{.events = static_cast<std::uint32_t>(events.size())});
      for (const FdpEvent& event : events) put(out, event);
      return out;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace csdsim::nvme
