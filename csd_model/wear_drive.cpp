#include "csd_model/wear_drive.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "csd_model/block_quota.h"
#include "csd_model/mapping_units.h"
#include "ftl/block/block_reserve.h"

namespace csdsim::csd_model {

WearFlash wear_flash(const DriveConfig& config) {
  const FlashGeometry blocks = mapped_geometry(config);
  const ftl::BlockQuota quota =
      block_quota(config.geometry.blocks_per_plane, config.blocks.spare_blocks, config.kv_share);
  const std::uint32_t unit = config.reclaim_unit_blocks, planes = blocks.planes();
  if (unit == 1) return {blocks, quota};
  const std::uint32_t over = std::min(unit, planes), deep = unit / over;
  if (planes % over != 0 || unit % over != 0 || quota.block_namespace % deep != 0)
    throw UserError(
        fmt::format("reclaim_unit_blocks: units of {} blocks do not divide {} planes with {} blocks of the namespace",
                    unit, planes, quota.block_namespace));
  const std::uint64_t pages = std::uint64_t{blocks.pages_per_block} * unit;
  if (pages > std::numeric_limits<std::uint32_t>::max())
    throw UserError(fmt::format("reclaim_unit_blocks: a unit of {} mapping units is larger than {}", pages,
                                std::numeric_limits<std::uint32_t>::max()));
  return {.geometry = {.channels = planes / over,
                       .dies_per_channel = 1,
                       .planes_per_die = 1,
                       .blocks_per_plane = quota.block_namespace / deep,
                       .pages_per_block = static_cast<std::uint32_t>(pages),
                       .page_size = blocks.page_size},
          .quota = {.block_namespace = quota.block_namespace / deep, .kv_namespace = 0}};
}

Bytes wear_capacity(const DriveConfig& config) {
  const WearFlash flash = wear_flash(config);
  return flash.geometry.page_size *
         ftl::exported_pages(block_config(config), flash.geometry, flash.quota.block_namespace);
}

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
