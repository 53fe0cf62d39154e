#include "experiment/endurance/tier_writers.h"

#include <algorithm>

#include "base/error.h"
#include "csd_model/wear_drive.h"
#include "experiment/assemble.h"
#include "host_runtime/core/serving/engine/file_system.h"

namespace csdsim::experiment {

const ObjectWorkload& objects_of(const scenario::Scenario& s) {
  const auto* const work = dynamic_cast<const ObjectWorkload*>(&*s.workload);
  if (work == nullptr || s.simulation.data != ftl::DataMode::wear)
    throw UserError(
        "certify needs a workload of kind objects with simulation.data: wear "
        "(scenarios/endurance/nine_writers.yaml is one), a workload of kind serving with drives, or --object without a "
        "scenario");
  return *work;
}

ObjectWorkload& objects_of(scenario::Scenario& s) {
  return const_cast<ObjectWorkload&>(objects_of(static_cast<const scenario::Scenario&>(s)));
}

const ServingWorkload* serving_of(const scenario::Scenario& s) {
  return dynamic_cast<const ServingWorkload*>(&*s.workload);
}

namespace {

/// Halves channels, then dies, until the drive is written in seconds. Returns what it was divided by.
std::uint32_t scale_down(csd_model::DeviceConfig& device, Bytes object, Bytes unit) {
  constexpr double kMostUnits = 2e6;
  // Below four units collection begins at other times (docs/endurance.md).
  constexpr std::uint64_t kLeastUnits = 4;
  FlashGeometry& g = device.flash.geometry;
  double units = double(g.pages()) * double(g.page_size.value) / double(unit.value);
  std::uint32_t scale = 1;
  while (units > kMostUnits && device.ftl.reclaim_unit_blocks == 1 &&
         object.value >= 2 * scale * kLeastUnits * unit.value) {
    std::uint32_t& halved = g.channels % 2 == 0 ? g.channels : g.dies_per_channel;
    if (halved % 2 != 0) break;
    halved /= 2;
    scale *= 2;
    units /= 2;
  }
  return scale;
}

}  // namespace

WornDrive worn_by_tier(const scenario::Scenario& s, const ServingWorkload& work) {
  const Bytes object = work.tiers_config(s).whole_block();
  WornDrive worn{.scenario = s};
  csd_model::DeviceConfig& device = worn.scenario.platform.device;
  device.count = 1;
  device.ftl.gc.background.reset();
  device.ftl.refresh_age.reset();
  device.ftl.factory_bad_blocks = Ratio{0, 1};
  worn.scenario.simulation.data = ftl::DataMode::wear;
  worn.scenario.workload.select(ObjectWorkload::kKind);
  const Bytes unit = csd_model::wear_flash(drive_config(worn.scenario)).geometry.page_size;
  worn.scale = scale_down(device, object, unit);
  ObjectWorkload& objects = objects_of(worn.scenario);
  const DriveTierConfig& tier = *work.tiers.drives;
  const Bytes capacity = exported_capacity(worn.scenario);
  const std::uint64_t size = std::max(object.value / worn.scale / unit.value, std::uint64_t{1}) * unit.value;
  Bytes footprint = capacity;
  if (tier.capacity) footprint = Bytes{tier.capacity->value / worn.scale};
  std::uint64_t blocks = std::min(footprint, capacity).value / size;
  if (tier.files) {
    const host::FileSystemLayout layout(*tier.files, tier.capacity.value_or(exported_capacity(s)), object);
    blocks = std::min(layout.places, blocks);
    objects.writers.stores = {ObjectStore::files};
    objects.trims = tier.files->discard;
    if (blocks > 0) objects.free_space = Ratio{layout.places - layout.files, layout.places};
  }
  if (blocks == 0) throw UserError("workload.tiers.drives.capacity: holds no block of the tier");
  objects.writers.object_sizes = {Bytes{size}};
  objects.writers.footprints = {Bytes{blocks * size}};
  objects.writers.names = {"tier"};
  objects.request_size = std::min(objects.request_size, Bytes{size});
  return worn;
}

}  // namespace csdsim::experiment
