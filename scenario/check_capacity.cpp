// The capacity of a drive, stated in more than one way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "scenario/check.h"

namespace csdsim::scenario {
namespace {

using config::Layer;

constexpr std::string_view kCapacity = "platform.device.capacity";
constexpr std::string_view kOverProvisioning = "platform.device.ftl.over_provisioning";
constexpr std::string_view kOfUser = "platform.device.ftl.over_provisioning_of_user";
constexpr std::string_view kBlocksPerPlane = "platform.device.flash.blocks_per_plane";

Bytes raw_capacity(const FlashGeometry& g) { return g.page_size * g.pages(); }

/// Erase blocks per plane with which the share of the flash that is not over-provisioned holds `user`.
std::uint64_t blocks_for(Bytes user, const FlashGeometry& g, Ratio share) {
  using Exact = unsigned __int128;
  const Exact of_blocks = Exact{g.page_size.value} * g.pages_per_block * g.planes();  // of one block of each plane
  const Exact data = of_blocks * (share.denominator - share.numerator);
  return static_cast<std::uint64_t>((Exact{user.value} * share.denominator + data - 1) / data);
}

/// Both say it: they must mean the same.
bool check_agreement(Checker& c, Bytes user, const FlashGeometry& g, Ratio share) {
  const double raw = static_cast<double>(raw_capacity(g).value), left = raw * (1 - share.value());
  const double wanted = static_cast<double>(user.value);
  const bool agree = std::abs(left - wanted) <= 0.005 * wanted;
  c.require(agree, {kCapacity, kOverProvisioning, kBlocksPerPlane},
            fmt::format("{}: {} disagrees with the flash of {:.2f} GB of which over_provisioning {} leaves {:.2f} GB: "
                        "leave one of capacity, over-provisioning and blocks_per_plane out, or give the "
                        "over-provisioning of {:.4f} or {} blocks_per_plane",
                        kCapacity, format_quantity(user), raw / 1e9, format_quantity(share), left / 1e9,
                        1 - wanted / raw, blocks_for(user, g, share)));
  return agree;
}

}  // namespace

void resolve_capacity(Checker& c) {
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
  c.require(user <= raw, {kCapacity, kBlocksPerPlane},
            fmt::format("{}: {} do not fit into a flash of {:.2f} GB", kCapacity, format_quantity(user),
                        static_cast<double>(raw.value) / 1e9));
  if (user <= raw) share = Ratio::of(raw.value - user.value, raw.value);
}

}  // namespace csdsim::scenario
