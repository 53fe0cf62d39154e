#include "experiment/generation/flash_division.h"

#include <algorithm>
#include <cmath>

namespace csdsim::experiment {

namespace {

/// Erase blocks of a plane that hold no data: open ones, and those that garbage collection finds free.
constexpr std::uint32_t kSpare = 6;

/// Erase blocks on each plane of a drive that the weights take.
std::uint32_t blocks_of_weights(const scenario::Scenario& s, const host::FlashWeights& weights) {
  const csd_model::DeviceConfig& device = s.platform.device;
  const FlashGeometry& g = device.flash.geometry;
  const auto row = static_cast<double>(g.page_size.value * g.pages_per_block * g.planes());
  const auto bytes = static_cast<double>(weights.blocks(host::DriveIndex{0}) * device.nvme.block_size.value);
  // A cached map has its entries in flash, too.
  const double entries = std::holds_alternative<ftl::CachedMap>(device.ftl.map) ? 1.01 : 1;
  const double blocks = entries * bytes / row;
  return static_cast<std::uint32_t>(
             std::ceil(std::max(blocks / (1 - device.ftl.over_provisioning.value()), blocks + kSpare))) +
         device.ftl.gc_free_blocks;
}

}  // namespace

bool keeps_blocks(const host::SystemNeeds& needs) {
  return std::ranges::any_of(needs.residents,
                             [](const host::Resident& r) { return r.home == host::Home::drive_blocks; });
}

Ratio block_share(const scenario::Scenario& s, const GenerationWorkload& work) {
  const host::ModelShape model = s.model.shape();
  const host::SystemNeeds needs = s.system->needs(model, work.lengths());
  if (needs.files || (keeps_blocks(needs) && needs.kv != host::Home::drive_kv)) return {1, 1};
  if (work.background) return work.background->capacity_share;
  const auto weights = s.system->flash_weights({.model = model,
                                                .workload = work.lengths(),
                                                .drives = s.platform.device.count,
                                                .block_size = s.platform.device.nvme.block_size,
                                                .carried = s.simulation.data == ftl::DataMode::carried});
  if (!weights) return {0, 1};
  const csd_model::DeviceConfig& device = s.platform.device;
  const std::uint32_t all = device.flash.geometry.blocks_per_plane;
  const std::uint32_t usable = std::max(1U, all - std::min(all, device.ftl.spare_blocks));
  return Ratio::of(std::min(blocks_of_weights(s, *weights), usable), usable);
}

}  // namespace csdsim::experiment
