#include "csd_model/exported_capacity.h"

#include "base/error.h"
#include "csd_model/mapping_units.h"
#include "ftl/block/block_reserve.h"

namespace csdsim::csd_model {

Bytes exported_capacity(const DriveConfig& config) {
  const ReclaimFlash flash = reclaim_flash(config);
  return flash.geometry.page_size *
         ftl::exported_pages(block_config(config), flash.geometry, flash.quota.block_namespace);
}

Bytes exported_capacity(const DeviceConfig& device, double kv_share) {
  DriveConfig config = drive_config(device, 0);
  config.kv_share = kv_share;
  return exported_capacity(config);
}

std::optional<Bytes> exported_capacity_if_any(const DeviceConfig& device, double kv_share) {
  try {
    return exported_capacity(device, kv_share);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace csdsim::csd_model
