#include "csd_model/wear_drive.h"

#include "csd_model/mapping_units.h"
#include "ftl/block/block_reserve.h"

namespace csdsim::csd_model {

WearFlash wear_flash(const DriveConfig& config) { return reclaim_flash(config); }

Bytes wear_capacity(const DriveConfig& config) {
  const WearFlash flash = wear_flash(config);
  return flash.geometry.page_size *
         ftl::exported_pages(block_config(config), flash.geometry, flash.quota.block_namespace);
}

WearDrive::WearDrive(const DriveConfig& config, const WearFlash& flash)
    : blocks(flash.geometry, flash.quota, config.blocks),
      store(flash.geometry, config.data),
      ftl(block_config(config), blocks, store) {}

}  // namespace csdsim::csd_model
