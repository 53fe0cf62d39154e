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

}  // namespace

std::uint32_t reserved_blocks(const BlockFtlConfig& config) { return open_blocks(config) + 1; }

void require_collectable(const BlockFtlConfig& config, std::uint32_t blocks) {
  const std::uint32_t needed = reserved_blocks(config) + config.gc_free_blocks;
  if (blocks > needed) return;
  throw UserError(
      fmt::format("the block namespace has {} blocks a plane, garbage collection needs more than {}", blocks, needed));
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
