// The capacity of a drive, stated in more than one way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "csd_model/block_quota.h"
#include "csd_model/exported_capacity.h"
#include "ftl/block/block_reserve.h"
#include "scenario/check.h"

namespace csdsim::scenario {
namespace {

using config::Layer;

constexpr std::string_view kCapacity = "platform.device.capacity";
constexpr std::string_view kOverProvisioning = "platform.device.ftl.over_provisioning";
constexpr std::string_view kOfUser = "platform.device.ftl.over_provisioning_of_user";
constexpr std::string_view kBlocksPerPlane = "platform.device.flash.blocks_per_plane";
constexpr std::string_view kScaledFrom = "platform.device.ftl.scaled_from_blocks";

Bytes raw_capacity(const FlashGeometry& g) { return g.page_size * g.pages(); }

/// What a drive with this over-provisioning and this many blocks in each plane exports.
std::optional<Bytes> exported(csd_model::DeviceConfig device, Ratio share, std::uint32_t blocks) {
  device.ftl.over_provisioning = share;
  device.flash.geometry.blocks_per_plane = blocks;
  return csd_model::exported_capacity_if_any(device);
}

/// The largest share of over-provisioning with which the drive exports at least `user`, which it does with none.
Ratio share_for(Bytes user, const csd_model::DeviceConfig& device) {
  const FlashGeometry& g = device.flash.geometry;
  const std::uint64_t raw = raw_capacity(g).value;
  std::uint64_t holds = 0, beyond = raw;
  while (beyond - holds > 1) {
    const std::uint64_t middle = std::midpoint(holds, beyond);
    (exported(device, Ratio::of(middle, raw), g.blocks_per_plane) >= user ? holds : beyond) = middle;
  }
  return Ratio::of(holds, raw);
}

constexpr std::uint32_t kMostBlocks = 1'048'576;  // as of blocks_per_plane

/// The blocks per plane that a drive may have: whole reclaim units beside the blocks that are no part of the block
/// namespace.
struct BlockSteps {
  std::uint32_t others = 0, step = 1;

  explicit BlockSteps(const csd_model::DeviceConfig& device)
      : others(kMostBlocks - csd_model::block_quota(kMostBlocks, device.ftl.spare_blocks, 0).block_namespace) {
    const FlashGeometry& g = device.flash.geometry;
    const std::uint32_t planes = g.planes() / (device.ftl.superblocks ? g.planes_per_die : 1);
    step = std::max(1U, device.ftl.reclaim_unit_blocks / planes);
  }
  std::uint32_t most() const { return (kMostBlocks - others) / step; }
  std::uint32_t blocks(std::uint32_t units) const { return others + units * step; }
};

/// The fewest erase blocks per plane with which the drive exports at least `user` beside a share of over-provisioning;
/// nothing if that takes more than can be modelled.
std::optional<std::uint32_t> blocks_for(Bytes user, const csd_model::DeviceConfig& device, Ratio share) {
  const BlockSteps steps(device);
  const auto holds = [&](std::uint32_t units) { return exported(device, share, steps.blocks(units)) >= user; };
  std::uint32_t below = 0, enough = steps.most();
  if (!holds(enough)) return std::nullopt;
  while (enough - below > 1) {
    const std::uint32_t middle = std::midpoint(below, enough);
    (holds(middle) ? enough : below) = middle;
  }
  return steps.blocks(enough);
}

/// All say it: they must mean the same, but for shares in whole percent and capacities of four digits.
bool check_agreement(Checker& c, Bytes user, Bytes left, const csd_model::DeviceConfig& device) {
  const double raw = static_cast<double>(raw_capacity(device.flash.geometry).value);
  const Ratio share = device.ftl.over_provisioning;
  const bool agree = std::abs(static_cast<double>(left.value) - static_cast<double>(user.value)) <= 0.006 * raw;
  if (agree) return true;
  const auto blocks = blocks_for(user, device, share);
  c.require(false, {kCapacity, kOverProvisioning, kBlocksPerPlane},
            fmt::format("{}: {} disagrees with the flash of {:.2f} GB of which over_provisioning {} leaves {:.2f} GB: "
                        "leave one of capacity, over-provisioning and blocks_per_plane out, or give the "
                        "over-provisioning of {:.4f}{}",
                        kCapacity, format_quantity(user), raw / 1e9, format_quantity(share),
                        static_cast<double>(left.value) / 1e9, share_for(user, device).value(),
                        blocks ? fmt::format(" or {} blocks_per_plane", *blocks) : ""));
  return false;
}

/// What the host sees, from over-provisioning, capacity and blocks.
void resolve_user_capacity(Checker& c) {
  csd_model::DeviceConfig& device = c.scenario().platform.device;
  FlashGeometry& g = device.flash.geometry;
  Ratio& share = device.ftl.over_provisioning;
  if (!c.readable({kCapacity, kOverProvisioning, kOfUser, kBlocksPerPlane, "platform.device.flash.channels",
                   "platform.device.flash.dies_per_channel", "platform.device.flash.planes_per_die",
                   "platform.device.flash.pages_per_block", "platform.device.flash.page_size"}))
    return;
  Layer spare = c.layer(kOverProvisioning);
  if (auto& of_user = device.ftl.over_provisioning_of_user) {
    if (c.first_wins(kOfUser, kOverProvisioning)) {
      share = Ratio::of(of_user->numerator, of_user->numerator + of_user->denominator);
      spare = c.layer(kOfUser);
    }
    of_user.reset();
  }
  if (!device.capacity) return;
  const Bytes user = *device.capacity;
  const Layer blocks = c.layer(kBlocksPerPlane);
  const bool sized = blocks != Layer::builtin && (spare < Layer::file || blocks >= Layer::file);
  const BlockSteps steps(device);
  // Checks of its parts say why there is no such drive.
  if (!exported(device, share, sized ? g.blocks_per_plane : steps.blocks(steps.most()))) return;
  if (!sized) {
    const std::optional<std::uint32_t> needed = blocks_for(user, device, share);
    c.require(needed.has_value(), {kCapacity},
              fmt::format("{}: {} take more than {} erase blocks of {} in each of {} planes, which are the most that "
                          "can be modelled: give the geometry of the flash",
                          kCapacity, format_quantity(user), kMostBlocks,
                          format_quantity(g.page_size * g.pages_per_block), g.planes()));
    if (!needed) return;
    g.blocks_per_plane = *needed;
  }
  const std::optional<Bytes> most = exported(device, Ratio{0, 1}, g.blocks_per_plane);
  if (!most) return;
  c.require(user <= *most, {kCapacity, kBlocksPerPlane},
            fmt::format("{}: {} do not fit into a flash of {:.2f} GB, which exports at most {:.2f} GB: raise {} (now "
                        "{}), or its dies or channels",
                        kCapacity, format_quantity(user), static_cast<double>(raw_capacity(g).value) / 1e9,
                        static_cast<double>(most->value) / 1e9, kBlocksPerPlane, g.blocks_per_plane));
  if (user > *most) return;
  const std::optional<Bytes> left = exported(device, share, g.blocks_per_plane);
  if (sized && spare >= Layer::file && left && !check_agreement(c, user, *left, device)) return;
  share = share_for(user, device);
}

/// Makes the over-provisioning of a whole drive that of a smaller copy.
void scale_down(Checker& c) {
  csd_model::DeviceConfig& device = c.scenario().platform.device;
  if (!device.ftl.scaled_from_blocks || !c.readable({kScaledFrom, kBlocksPerPlane, kOverProvisioning})) return;
  const std::uint32_t whole = *std::exchange(device.ftl.scaled_from_blocks, std::nullopt);
  const std::uint32_t blocks = device.flash.geometry.blocks_per_plane;
  c.require(
      whole >= blocks, {kScaledFrom, kBlocksPerPlane},
      fmt::format("{}: {} blocks per plane are fewer than those of the smaller copy, {}", kScaledFrom, whole, blocks));
  c.require(!device.capacity, {kScaledFrom, kCapacity},
            fmt::format("{}: the capacity of a smaller copy follows from the share of spare flash: leave {} out",
                        kScaledFrom, kCapacity));
  c.require(!device.has_engine(), {kScaledFrom, "platform.device.ftl.mapping.kind"},
            fmt::format("{}: only drives without KV cache can be scaled: give mapping: {{kind: page}}", kScaledFrom));
  if (whole < blocks || device.capacity || device.has_engine()) return;
  const ftl::BlockFtlConfig config = ftl::block_ftl_config(device.ftl);
  const auto in_namespace = [&](std::uint32_t of_plane) {
    return csd_model::block_quota(of_plane, device.ftl.spare_blocks, 0).block_namespace;
  };
  double scaled = 0;
  try {
    ftl::require_collectable(config, in_namespace(blocks));
    scaled = ftl::scaled_over_provisioning(config, in_namespace(blocks), in_namespace(whole));
  } catch (const UserError& error) {
    c.require(false, {kBlocksPerPlane, "platform.device.ftl.spare_blocks"},
              fmt::format("{}: {}", kBlocksPerPlane, error.what()));
    return;
  }
  constexpr std::uint64_t kParts = 1'000'000;
  device.ftl.over_provisioning = Ratio::of(static_cast<std::uint64_t>(std::llround(scaled * kParts)), kParts);
  c.note_at(
      kScaledFrom,
      fmt::format("{}: the smaller copy has over_provisioning {:.4g}, in place of {:.4g}: beside open and free blocks, "
                  "{:.2f} % of the flash is spare in both",
                  kScaledFrom, scaled, config.over_provisioning,
                  100 * ftl::effective_spare(config, in_namespace(whole))));
}

}  // namespace

void resolve_capacity(Checker& c) {
  resolve_user_capacity(c);
  scale_down(c);
}

}  // namespace csdsim::scenario
