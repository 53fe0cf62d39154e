#include "experiment/check_blocks.h"

#include <fmt/format.h>

#include "base/error.h"
#include "csd_model/block_quota.h"
#include "ftl/core/block_reserve.h"

namespace csdsim::experiment {

void check_erase_blocks(scenario::Checker& c) {
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
  ftl::BlockFtlConfig config = ftl::block_ftl_config(device.ftl);
  if (std::holds_alternative<ftl::CachedMap>(device.ftl.map)) config.map_cache_entries = 1;
  try {
    ftl::require_collectable(config, quota.block_namespace);
  } catch (const UserError& error) {
    c.require(false, {"platform.device.ftl.gc_free_blocks", blocks},
              fmt::format("platform.device.ftl.gc_free_blocks: {}", error.what()));
  }
}

}  // namespace csdsim::experiment
