#include "experiment/memory/flash_division.h"

#include <algorithm>
#include <cmath>

namespace csdsim::experiment {

namespace {

/// Erase blocks of a plane that hold no data: open ones, and those that garbage collection finds free.
constexpr std::uint32_t kSpare = 6;

/// Erase blocks on each plane of a drive that data of a block namespace take.
std::uint32_t erase_blocks(const scenario::Scenario& s, double bytes) {
  const csd_model::DeviceConfig& device = s.platform.device;
  const FlashGeometry& g = device.flash.geometry;
  const auto row = static_cast<double>(g.page_size.value * g.pages_per_block * g.planes());
  // A cached map has its entries in flash, too.
  const double entries = std::holds_alternative<ftl::CachedMap>(device.ftl.map) ? 1.01 : 1;
  const double blocks = entries * bytes / row;
  return static_cast<std::uint32_t>(
             std::ceil(std::max(blocks / (1 - device.ftl.over_provisioning.value()), blocks + kSpare))) +
         device.ftl.gc_free_blocks;
}

/// Bytes that a drive keeps in its block namespace beside K and V: weights, or what the drives divide and the run
/// writes. The latter has its room twice, so that writing it collects no garbage where it is mapped from the start.
double bytes_in_blocks(const scenario::Scenario& s, const GenerationWorkload& work) {
  const host::PlannerInputs run = planned_run(s, work.lengths());
  double bytes = 0;
  for (const auto& feature : s.system->features(run))
    bytes += static_cast<double>(feature->blocks(host::DriveIndex{0}) * run.block_size.value);
  if (bytes > 0) return bytes;
  for (const host::Resident& resident : s.system->needs(run).residents)
    if (resident.home == host::Place::drive_blocks()) bytes += 2 * static_cast<double>(resident.bytes.value);
  return bytes / run.drives;
}

}  // namespace

std::string kept_in_blocks(const host::SystemNeeds& needs) {
  const auto kept = std::ranges::find(needs.residents, host::Place::drive_blocks(), &host::Resident::home);
  return kept == needs.residents.end() ? "" : kept->what;
}

Ratio block_share(const scenario::Scenario& s, const GenerationWorkload& work) {
  const host::SystemNeeds needs = s.system->needs({.model = s.model.shape(), .workload = work.lengths()});
  if (needs.files || (keeps_blocks(needs) && needs.kv != host::Place::drive_kv())) return {1, 1};
  if (work.background) return work.background->capacity_share;
  const double bytes = bytes_in_blocks(s, work);
  if (bytes == 0) return {0, 1};
  const csd_model::DeviceConfig& device = s.platform.device;
  const std::uint32_t all = device.flash.geometry.blocks_per_plane;
  const std::uint32_t usable = std::max(1U, all - std::min(all, device.ftl.spare_blocks));
  return Ratio::of(std::min(erase_blocks(s, bytes), usable), usable);
}

}  // namespace csdsim::experiment
