#include "experiment/block_io/check_blocks.h"

#include <fmt/format.h>

#include <bit>

#include "base/error.h"
#include "csd_model/block_quota.h"
#include "ftl/block/block_reserve.h"
#include "ftl/core/factory_bad_blocks.h"
#include "platform/queue_memory.h"

namespace csdsim::experiment {
namespace {

void check_queue_memory(scenario::Checker& c) {
  const platform::PlatformConfig& platform = c.scenario().platform;
  const nvme::NvmeConfig& nvme = platform.device.nvme;
  const Bytes queues = platform::queue_memory(nvme.queues, nvme.queue_depth, nvme.mdts);
  constexpr std::string_view key = "platform.host.memory";
  c.require(platform.device.count <= platform.host.memory.value / queues.value,
            {key, "platform.device.nvme.queues", "platform.device.nvme.queue_depth", "platform.device.nvme.mdts",
             "platform.device.count"},
            fmt::format("{}: {} do not hold the queues of {} drives, {} MiB each", key,
                        format_quantity(platform.host.memory), platform.device.count, queues.value >> 20));
}

}  // namespace

void check_factory_bad_blocks(scenario::Checker& c) {
  const scenario::Scenario& s = c.scenario();
  const ftl::FtlConfig& config = s.platform.device.ftl;
  const FlashGeometry& flash = s.platform.device.flash.geometry;
  const double share = config.factory_bad_blocks.value();
  if (share <= 0 || flash.blocks() > std::uint64_t{1} << 28) return;  // that many are refused anyway
  std::vector<std::uint32_t> bad(flash.planes());
  for (std::uint32_t block = 0; block < flash.blocks(); ++block)
    if (ftl::bad_from_factory(share, s.seed, block)) ++bad[block / flash.blocks_per_plane];
  constexpr std::string_view key = "platform.device.ftl.factory_bad_blocks";
  try {
    ftl::require_spare_blocks(bad, config.spare_blocks);
  } catch (const UserError& error) {
    c.require(false, {key, "platform.device.ftl.spare_blocks"}, fmt::format("{}: {}", key, error.what()));
  }
}

void check_blocks_and_queues(scenario::Checker& c) {
  const scenario::Scenario& s = c.scenario();
  const csd_model::DeviceConfig& device = s.platform.device;
  constexpr std::string_view blocks = "platform.device.flash.blocks_per_plane";
  ftl::BlockQuota quota;
  try {
    quota = csd_model::block_quota(device.flash.geometry.blocks_per_plane, device.ftl.spare_blocks,
                                   device.has_engine() ? s.workload->kv_share(s) : 0);
  } catch (const UserError& error) {
    c.require(false, {blocks, "platform.device.ftl.spare_blocks"}, fmt::format("{}: {}", blocks, error.what()));
    return;
  }
  csd_model::ReclaimShape unit;
  try {
    unit = csd_model::reclaim_shape(
        device.ftl.reclaim_unit_blocks,
        device.flash.geometry.planes() / (device.ftl.superblocks ? device.flash.geometry.planes_per_die : 1),
        quota.block_namespace);
  } catch (const UserError& error) {
    c.require(false, {"platform.device.ftl.reclaim_unit_blocks", blocks},
              fmt::format("platform.device.ftl.{}", error.what()));
    return;
  }
  try {
    ftl::require_collectable(ftl::block_ftl_config(device.ftl), quota.block_namespace / unit.deep);
  } catch (const UserError& error) {
    c.require(false, {"platform.device.ftl.gc_free_blocks", blocks},
              fmt::format("platform.device.ftl.gc_free_blocks: {}", error.what()));
  }
  check_factory_bad_blocks(c);
  check_queue_memory(c);
}

void check_placements(scenario::Checker& c, const std::vector<std::uint32_t>& identifiers, std::string_view path) {
  if (identifiers.empty()) return;
  const csd_model::DeviceConfig& device = c.scenario().platform.device;
  constexpr std::string_view fdp = "platform.device.nvme.fdp";
  const bool enabled = device.nvme.fdp && device.nvme.fdp->enabled;
  c.require(
      enabled, {path, fdp, "platform.device.nvme.fdp.enabled"},
      fmt::format("{}: the drive has no Flexible Data Placement, or it is off: give {}: {{enabled: true}}", path, fdp));
  if (!enabled) return;
  const auto& list = device.nvme.fdp->placement_handles;
  const std::uint64_t handles = list.empty() ? device.ftl.placement.handles : list.size();
  const std::uint32_t groups = device.reclaim_groups();
  const int below = 16 - std::bit_width(groups - 1);
  for (const std::uint32_t identifier : identifiers)
    c.require(identifier <= 0xFFFF && identifier >> below < groups && (identifier & ((1U << below) - 1)) < handles,
              {path, "platform.device.ftl.placement.handles", "platform.device.nvme.fdp.placement_handles"},
              fmt::format("{}: {} names no reclaim unit: identifiers have a reclaim group below {} from bit {} on, and "
                          "below it a placement handle below {}",
                          path, identifier, groups, below, handles));
}

}  // namespace csdsim::experiment
