#include "csd_model/firmware/placement_service.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>

#include "nvme_if/core/wire.h"

namespace csdsim::csd_model {

using ftl::PlacementHandle;
using nvme::EnduranceGroup;
namespace status = nvme::status;

namespace {

EnduranceGroup::Target target_of(PlacementHandle handle, PlaneId plane) {
  return {static_cast<std::uint16_t>(handle.value), static_cast<std::uint16_t>(plane.value)};
}

}  // namespace

void PlacementService::report_to(EnduranceGroup* group) {
  group_ = group;
  if (group != nullptr) ftl_.observe_placement(*this);
}

void PlacementService::status(nvme::Command& command, const nvme::ReclaimUnitStatus& op) {
  if (!op.asked) return command.complete(status::success);
  const EnduranceGroup& group = *op.group;
  const std::uint64_t blocks_per_page = ftl_.page_size().value / block_size_.value;
  std::vector<nvme::ReclaimUnitHandleStatusDescriptor> units;
  const auto& handles = group.placement_handles();
  for (std::uint32_t at = 0; at < handles.size(); ++at)
    for (std::uint32_t plane = 0; plane < group.params().reclaim_groups; ++plane)
      units.push_back(
          {.identifier = group.identifier(at, plane),
           .handle = handles[at],
           .blocks_left = ftl_.unit_pages_left(PlaneId{plane}, PlacementHandle{handles[at]}) * blocks_per_page});
  const auto data = std::make_shared<std::vector<std::byte>>();
  nvme::put(*data, nvme::ReclaimUnitHandleStatus{.descriptors = static_cast<std::uint16_t>(units.size())});
  for (const auto& unit : units) nvme::put(*data, unit);
  data->resize(command.io().data.value);
  command.complete_with_data(Bytes{0}, *data, [data](nvme::Status) {});
}

void PlacementService::update(nvme::Command& command, const nvme::ReclaimUnitUpdate& op) {
  if (op.identifiers == 0) return command.complete(status::success);
  const auto identifiers = std::make_shared<std::vector<std::uint16_t>>(op.identifiers);
  command.read_host(Bytes{0}, std::as_writable_bytes(std::span(*identifiers)),
                    [this, &command, identifiers, group = op.group](nvme::Status s) {
                      if (!s.ok()) return command.complete(s);
                      end_units(command, *group, *identifiers);
                    });
}

/// Closes the reclaim units that are open; the next write with such an identifier opens another one.
void PlacementService::end_units(nvme::Command& command, EnduranceGroup& group,
                                 const std::vector<std::uint16_t>& identifiers) {
  std::vector<EnduranceGroup::Target> targets;
  for (const std::uint16_t identifier : identifiers) {
    const auto target = group.target(identifier);
    if (!target) return command.complete(status::invalid_field);
    targets.push_back(*target);
  }
  ftl::IoPlan plan;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const PlaneId plane{targets[i].reclaim_group};
    const PlacementHandle handle{targets[i].handle};
    if (ftl_.unit_pages_left(plane, handle) < geometry_.pages_per_block)
      group.note({.type = nvme::FdpEventType::unit_not_full,
                  .flags = nvme::fdp_event_flag::identifier_valid | nvme::fdp_event_flag::namespace_valid,
                  .identifier = identifiers[i],
                  .nsid = command.entry().nsid},
                 targets[i]);
    std::ranges::move(ftl_.end_unit(plane, handle).phases, std::back_inserter(plan.phases));
  }
  blocks_.run_plan(std::move(plan), [&command] { command.complete(status::success); });
}

nvme::FdpCounts PlacementService::counts() const {
  const ftl::BlockFtlStats& stats = ftl_.stats();
  const std::uint64_t unit = geometry_.pages_per_block * geometry_.page_size.value;
  return {.host_written = stats.host_bytes_written,
          .media_written = stats.work().programmed() * geometry_.page_size.value,
          .media_erased = (stats.gc_erases + stats.wear_erases + stats.refreshed_blocks) * unit};
}

void PlacementService::erase_namespace(std::function<void()> done) {
  blocks_.run_plan(ftl_.trim(Bytes{}, ftl_.capacity()), std::move(done));
}

void PlacementService::moved(PlacementHandle handle, PlaneId plane, std::uint32_t pages, ftl::LogicalPage first) {
  const std::uint64_t blocks_per_page = ftl_.page_size().value / block_size_.value;
  group_->note(
      {.type = nvme::FdpEventType::media_reallocated,
       .flags = nvme::fdp_event_flag::namespace_valid,
       .nsid = 1,
       .reallocated_flags = 1,
       .reallocated_blocks = static_cast<std::uint16_t>(std::min<std::uint64_t>(pages * blocks_per_page, 0xFFFF)),
       .lba = first.value * blocks_per_page},
      target_of(handle, plane));
}

void PlacementService::closed(PlacementHandle handle, PlaneId plane) {
  group_->note({.type = nvme::FdpEventType::handle_changed, .flags = nvme::fdp_event_flag::namespace_valid, .nsid = 1},
               target_of(handle, plane));
}

}  // namespace csdsim::csd_model
