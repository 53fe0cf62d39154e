#include "ftl/block/block_reserve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace csdsim::ftl {
namespace {

/// Open blocks of a plane: one of the host for each placement handle, one of collection (persistently isolated: for
/// each handle), and one each of wear levelling and of the map where the drive has them.
std::uint32_t open_blocks(const BlockFtlConfig& config) {
  return config.handles + (config.isolation == Isolation::persistently ? config.handles : 1) +
         (config.wear_spread > 0 ? 1 : 0) + (config.map_cache_entries ? 1 : 0);
}

/// Open blocks that the host's further handles may have. Collection closes them where room is short, so that they need
/// not be kept back.
std::uint32_t closable_blocks(const BlockFtlConfig& config) { return config.handles - 1; }

}  // namespace

std::uint32_t reserved_blocks(const BlockFtlConfig& config) {
  return open_blocks(config) - closable_blocks(config) + 1;
}

void require_collectable(const BlockFtlConfig& config, std::uint32_t blocks) {
  const std::uint32_t needed = reserved_blocks(config) + closable_blocks(config) + config.gc_free_blocks;
  if (blocks > needed) return;
  throw UserError(
      fmt::format("the block namespace has {} blocks a plane, garbage collection needs more than {}", blocks, needed));
}

std::uint64_t exported_pages(const BlockFtlConfig& config, const FlashGeometry& g, std::uint32_t quota) {
  if (!(config.over_provisioning >= 0 && config.over_provisioning < 1)) {
    throw UserError(fmt::format("over_provisioning is {}, it must be in [0, 1)", config.over_provisioning));
  }
  if (config.gc_free_blocks < 1) throw UserError("gc_free_blocks is 0, it must be at least 1");
  if (config.gc_step_pages < 1) throw UserError("gc_step_pages is 0, it must be at least 1");
  if (config.isolation == Isolation::persistently && config.wear_spread > 0)
    throw UserError(
        "static wear levelling moves data of all handles into the same blocks: leave out persistently "
        "isolated handles, or wear_spread");
  const std::uint32_t reserved = reserved_blocks(config);
  require_collectable(config, quota);
  // A block that has lost fewer pages than this is not worth an erase, which may leave as many of a word line empty.
  const std::uint32_t wasted = config.volatile_lines ? config.units_per_program - 1 : 0;
  const std::uint64_t per_plane_cap = std::uint64_t{quota - reserved} * (g.pages_per_block - wasted);
  const double raw = static_cast<double>(std::uint64_t{quota} * g.pages_per_block * g.planes());
  const std::uint64_t pages =
      std::min(static_cast<std::uint64_t>(raw * (1 - config.over_provisioning)), per_plane_cap * g.planes());
  if (!config.map_cache_entries) return pages;
  if (*config.map_cache_entries == 0) throw UserError("the map cache holds no entry, it must hold at least 1");
  // Translation pages take their share; two pages a plane are lost to uneven shares.
  const std::uint64_t even = pages - std::min<std::uint64_t>(pages, 2 * std::uint64_t{g.planes()});
  const std::uint64_t entries = g.page_size.value / kMapEntryBytes;
  return even * entries / (entries + 1);
}

double empty_blocks(const BlockFtlConfig& config) {
  return std::max(config.gc_free_blocks, config.background_free_blocks) + open_blocks(config) / 2.0;
}

double effective_spare(const BlockFtlConfig& config, std::uint32_t blocks) {
  const double data = std::min(blocks * (1 - config.over_provisioning), double(blocks) - reserved_blocks(config));
  return 1 - data / (blocks - empty_blocks(config));
}

double scaled_over_provisioning(const BlockFtlConfig& config, std::uint32_t blocks, std::uint32_t whole) {
  return 1 - (1 - effective_spare(config, whole)) * (blocks - empty_blocks(config)) / blocks;
}

double greedy_amplification(double spare) {
  if (spare <= 0) return std::numeric_limits<double>::infinity();
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {
    const double u = (low + high) / 2;
    ((1 - u) / -std::log(u) < 1 - spare ? low : high) = u;
  }
  return 1 / (1 - low);
}

}  // namespace csdsim::ftl
