#include "csd_model/wear_drive.h"

#include "csd_model/mapping_units.h"

namespace csdsim::csd_model {

WearFlash wear_flash(const DriveConfig& config) { return reclaim_flash(config); }

WearDrive::WearDrive(const DriveConfig& config, const WearFlash& flash)
    : blocks(flash.geometry, flash.quota, config.blocks),
      store(flash.geometry, config.data),
      ftl(block_config(config), blocks, store),
      parts_(packing(config), flash.geometry.page_size, config.nvme.controller.block_size),
      load_(flash.geometry, ftl.stripe_order(), block_service_config(config).times,
            block_service_config(config).shared_arrays) {
  if (ftl.places_dynamically() && flash.geometry.planes() > 1) ftl.place_by(load_);
}

ftl::IoStatus WearDrive::write(Bytes offset, Bytes length, ftl::PlacementHandle handle) {
  ftl::IoStatus status = ftl::IoStatus::ok;
  const Bytes end = offset + length;
  while (offset < end && status == ftl::IoStatus::ok) {
    const Bytes part = std::min(parts_.end(offset), end) - offset;
    status = ftl.write_state(offset, part, handle);
    offset = offset + part;
  }
  return status;
}

}  // namespace csdsim::csd_model
