// The capacity of a drive, stated in more than one way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "csd_model/block_quota.h"
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

/// Erase blocks per plane with which the share of the flash that is not over-provisioned holds `user`.
std::uint64_t blocks_for(Bytes user, const FlashGeometry& g, Ratio share) {
  using Exact = unsigned __int128;
  const Exact of_blocks =
      Exact{g.page_size.value} * g.pages_per_block * g.planes();  // bytes of one block of each plane
  const Exact data = of_blocks * (share.denominator - share.numerator);
  return static_cast<std::uint64_t>((Exact{user.value} * share.denominator + data - 1) / data);
}

/// Both say it: they must mean the same, but for shares in whole percent and capacities of four digits.
bool check_agreement(Checker& c, Bytes user, const FlashGeometry& g, Ratio share) {
  const double raw = static_cast<double>(raw_capacity(g).value), left = raw * (1 - share.value());
  const double wanted = static_cast<double>(user.value);
  const bool agree = std::abs(left - wanted) <= 0.006 * raw;
  c.require(agree, {kCapacity, kOverProvisioning, kBlocksPerPlane},
            fmt::format("{}: {} disagrees with the flash of {:.2f} GB of which over_provisioning {} leaves {:.2f} GB: "
                        "leave one of capacity, over-provisioning and blocks_per_plane out, or give the "
                        "over-provisioning of {:.4f} or {} blocks_per_plane",
                        kCapacity, format_quantity(user), raw / 1e9, format_quantity(share), left / 1e9,
                        1 - wanted / raw, blocks_for(user, g, share)));
  return agree;
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
  if (blocks >= Layer::file && spare >= Layer::file) {
    if (user <= raw_capacity(g) && !check_agreement(c, user, g, share)) return;
  } else if (blocks == Layer::builtin || spare >= Layer::file) {
    const std::uint64_t needed = blocks_for(user, g, share);
    constexpr std::uint64_t kMost = 1'048'576;  // as of blocks_per_plane
    c.require(needed <= kMost, {kCapacity},
              fmt::format("{}: {} take {} erase blocks of {} in each of {} planes, more than the {} that can be "
                          "modelled: give the geometry of the flash",
                          kCapacity, format_quantity(user), needed, format_quantity(g.page_size * g.pages_per_block),
                          g.planes(), kMost));
    g.blocks_per_plane = static_cast<std::uint32_t>(std::min(needed, kMost));
  }
  const Bytes raw = raw_capacity(g);
  c.require(
      user <= raw, {kCapacity, kBlocksPerPlane},
      fmt::format("{}: {} do not fit into a flash of {:.2f} GB: raise {} (now {}), or its dies or channels", kCapacity,
                  format_quantity(user), static_cast<double>(raw.value) / 1e9, kBlocksPerPlane, g.blocks_per_plane));
  if (user <= raw) share = Ratio::of(raw.value - user.value, raw.value);
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
