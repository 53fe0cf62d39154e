#include "csd_model/block_quota.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace csdsim::csd_model {
namespace {

/// Blocks per plane that the block FTL needs for garbage collection.
constexpr std::uint32_t kMinBlockNamespace = 6;
constexpr std::uint32_t kMinKvNamespace = 1;

}  // namespace

ftl::BlockQuota block_quota(std::uint32_t blocks_per_plane, std::uint32_t spare_blocks, double kv_share) {
  const std::uint32_t blocks = blocks_per_plane - std::min(blocks_per_plane, spare_blocks);
  if (!(kv_share >= 0 && kv_share <= 1))
    throw UserError(fmt::format("drive: kv_share is {}, it must be in [0, 1]", kv_share));
  if (blocks < kMinBlockNamespace + kMinKvNamespace)
    throw UserError(
        fmt::format("drive: blocks_per_plane less spare_blocks is {}, both namespaces together need at least {}",
                    blocks, kMinBlockNamespace + kMinKvNamespace));
  const auto kv = static_cast<std::uint32_t>(std::lround(kv_share * blocks));
  const std::uint32_t kv_blocks = std::clamp(kv, kMinKvNamespace, blocks - kMinBlockNamespace);
  return {.block_namespace = blocks - kv_blocks, .kv_namespace = kv_blocks};
}

ReclaimShape reclaim_shape(std::uint32_t unit_blocks, std::uint32_t planes, std::uint32_t blocks) {
  const ReclaimShape shape{.over = std::min(unit_blocks, planes), .deep = unit_blocks / std::min(unit_blocks, planes)};
  if (planes % shape.over == 0 && unit_blocks % shape.over == 0 && blocks % shape.deep == 0) return shape;
  throw UserError(
      fmt::format("reclaim_unit_blocks: units of {} blocks do not divide {} planes with {} blocks of the namespace",
                  unit_blocks, planes, blocks));
}

}  // namespace csdsim::csd_model
