#include "csd_model/mapping_units.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "csd_model/block_quota.h"

namespace csdsim::csd_model {

PagePacking packing(const DriveConfig& config) {
  const Bytes page = config.geometry.page_size;
  const Bytes unit = config.mapping_unit.value == 0 ? page : config.mapping_unit;
  return {.units = static_cast<std::uint32_t>(page.value / unit.value),
          .pages = config.flash.word_line_pages,
          .planes = config.superblocks ? config.geometry.planes_per_die : 1,
          .page = page,
          .reads_whole = config.block.codeword.value == 0,
          .pads = config.write_buffer.value == 0};
}

namespace {

ftl::ArrayTimes array_times(const nfc::FlashTiming& flash) {
  const auto mean = [](const std::vector<SimTime>& by_type, SimTime otherwise) {
    if (by_type.empty()) return otherwise;
    SimTime sum;
    for (const SimTime time : by_type) sum += time;
    return SimTime{sum.ps / static_cast<std::int64_t>(by_type.size())};
  };
  const nfc::PageTypesConfig types = flash.page_types.value_or(nfc::PageTypesConfig{});
  return {.read = mean(types.read_latency, flash.read_latency),
          .program = mean(types.program_latency, flash.program_latency),
          .erase = flash.erase_latency};
}

}  // namespace

FlashGeometry mapped_geometry(const DriveConfig& config) {
  const PagePacking packed = packing(config);
  const std::uint32_t units = packed.units;
  if (units == 0) throw UserError("drive: a mapping unit is larger than a page");
  if (packed.line_pages() > 1 && config.kv_share > 0)
    throw UserError("drive: word lines of several pages need a drive without KV cache");
  if (packed.line() > 1 && (config.reliability || config.faults != nullptr))
    throw UserError("drive: units smaller than a word line need a drive without faults");
  if (packed.planes > 1 && packed.pads) throw UserError("drive: word lines over several planes need a write buffer");
  FlashGeometry geometry = config.geometry;
  if (geometry.pages_per_block % packed.pages != 0)
    throw UserError("drive: a block does not consist of whole word lines");
  geometry.page_size = {geometry.page_size.value / units};
  geometry.planes_per_die /= packed.planes;
  geometry.pages_per_block *= units * packed.planes;
  return geometry;
}

ReclaimFlash reclaim_flash(const DriveConfig& config) {
  const FlashGeometry blocks = mapped_geometry(config);
  const ftl::BlockQuota quota =
      block_quota(config.geometry.blocks_per_plane, config.blocks.spare_blocks, config.kv_share);
  const std::uint32_t unit = config.reclaim_unit_blocks, planes = blocks.planes();
  if (unit == 1) return {blocks, quota};
  if (config.kv_share > 0 || config.blocks.spare_blocks > 0 || config.reliability || config.faults != nullptr)
    throw UserError(
        "reclaim_unit_blocks: units of several blocks need a drive without KV cache, spare blocks and faults");
  const auto [over, deep] = reclaim_shape(unit, planes, quota.block_namespace);
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

namespace {

/// Where reclaim units of several blocks are in the flash; nothing for the blocks as they are.
std::optional<ReclaimLayout> reclaim_layout(const DriveConfig& config) {
  if (config.reclaim_unit_blocks == 1) return std::nullopt;
  const PagePacking packed = packing(config);
  FlashGeometry pages = mapped_geometry(config);
  pages.pages_per_block /= packed.units;
  pages.page_size = pages.page_size * packed.units;
  const ftl::BlockQuota quota =
      block_quota(config.geometry.blocks_per_plane, config.blocks.spare_blocks, config.kv_share);
  return ReclaimLayout(pages, config.block.stripe_order, config.reclaim_unit_blocks, quota.block_namespace,
                       packed.line_pages());
}

}  // namespace

FlashGeometry kv_geometry(const DriveConfig& config) {
  const std::uint32_t units = packing(config).units;
  FlashGeometry geometry = reclaim_flash(config).geometry;
  geometry.page_size = geometry.page_size * units;
  geometry.pages_per_block /= units;
  return geometry;
}

ftl::BlockFtlConfig block_config(const DriveConfig& config) {
  ftl::BlockFtlConfig block = config.block;
  block.units_per_program = packing(config).line();
  block.pads = packing(config).pads && block.units_per_program > 1;
  block.volatile_lines = config.power_loss.capacitors() == nullptr;
  if (config.map_cache.value > 0) block.map_cache_entries = config.map_cache.value / ftl::kCachedEntryBytes;
  return block;
}

BlockServiceConfig block_service_config(const DriveConfig& config) {
  const bool independent = config.flash.plane_mode == nfc::PlaneMode::independent;
  return {.block_size = config.nvme.controller.block_size,
          .geometry = reclaim_flash(config).geometry,
          .packing = packing(config),
          .layout = reclaim_layout(config),
          .flush = config.flush,
          .times = array_times(config.flash),
          .shared_arrays = !independent && !config.superblocks && config.reclaim_unit_blocks == 1,
          .protected_buffer = config.power_loss.capacitors() != nullptr};
}

}  // namespace csdsim::csd_model
