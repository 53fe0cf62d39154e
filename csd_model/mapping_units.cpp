#include "csd_model/mapping_units.h"

#include "base/error.h"

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
  if (packed.line_pages() > 1 && config.kv_share > 0)
    throw UserError("drive: word lines of several pages need a drive without KV cache");
  if (packed.line() > 1 && (config.reliability || config.faults != nullptr))
    throw UserError("drive: units smaller than a word line need a drive without faults");
  if (config.reclaim_unit_blocks > 1 && config.data != ftl::DataMode::wear)
    throw UserError("drive: reclaim units of several blocks need simulation.data: wear");
  if (packed.planes > 1 && packed.pads) throw UserError("drive: word lines over several planes need a write buffer");
  FlashGeometry geometry = config.geometry;
  if (geometry.pages_per_block % packed.pages != 0)
    throw UserError("drive: a block does not consist of whole word lines");
  geometry.page_size = {geometry.page_size.value / units};
  geometry.planes_per_die /= packed.planes;
  geometry.pages_per_block *= units * packed.planes;
  return geometry;
}

FlashGeometry kv_geometry(const DriveConfig& config) {
  const std::uint32_t units = packing(config).units;
  FlashGeometry geometry = mapped_geometry(config);
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
          .geometry = mapped_geometry(config),
          .packing = packing(config),
          .flush = config.flush,
          .times = array_times(config.flash),
          .shared_arrays = !independent && !config.superblocks,
          .protected_buffer = config.power_loss.capacitors() != nullptr};
}

}  // namespace csdsim::csd_model
