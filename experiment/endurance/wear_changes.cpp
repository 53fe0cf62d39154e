#include "experiment/endurance/wear_changes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "csd_model/exported_capacity.h"
#include "experiment/objects/object_result.h"

namespace csdsim::experiment {
namespace {

constexpr const char* kMoreFlash = "10 % more flash, the same capacity";

scenario::Scenario with_placement(scenario::Scenario s, ObjectPlacement placement) {
  ObjectWorkload& work = objects_of(s);
  work.placement_of_writes = placement;
  std::uint32_t handles = 1;
  for (std::size_t i = 0; i < work.writers.count(); ++i) handles = std::max(handles, work.class_of_writer(i) + 1);
  if (placement == ObjectPlacement::by_class)
    s.platform.device.ftl.placement.handles = std::max(s.platform.device.ftl.placement.handles, handles);
  return s;
}

/// The writers keep a share of their data.
scenario::Scenario with_footprint(scenario::Scenario s, double share) {
  ObjectWorkload& work = objects_of(s);
  const std::uint64_t capacity = csd_model::exported_capacity(wear_setup(s, work).drive).value;
  const std::vector<WriterConfig> writers = work.writer_configs(Bytes{capacity}, Bytes{1});
  work.writers.parts.clear();
  work.writers.footprints.clear();
  const std::uint64_t block = s.platform.device.nvme.block_size.value;
  for (const WriterConfig& writer : writers)
    work.writers.footprints.push_back(
        Bytes{static_cast<std::uint64_t>(double(writer.region.value) * share) / block * block});
  return s;
}

/// More flash of the same kind for the same capacity; whole reclaim units.
scenario::Scenario with_more_flash(scenario::Scenario s, double share) {
  FlashGeometry& g = s.platform.device.flash.geometry;
  ftl::FtlConfig& ftl = s.platform.device.ftl;
  const std::uint32_t deep = std::max(1u, ftl.reclaim_unit_blocks / std::min(ftl.reclaim_unit_blocks, g.planes()));
  const auto more = static_cast<std::uint32_t>(std::lround(share * g.blocks_per_plane / deep)) * deep;
  const double before = g.blocks_per_plane;
  g.blocks_per_plane += std::max(deep, more);
  const double data = (1 - ftl.over_provisioning.value()) * before / g.blocks_per_plane;
  ftl.over_provisioning = Ratio::of(static_cast<std::int64_t>((1 - data) * 1'000'000), 1'000'000);
  return s;
}

std::vector<WearSubject> changes_of_objects(const scenario::Scenario& s) {
  const ObjectWorkload& work = objects_of(s);
  std::vector<WearSubject> changes;
  const auto add = [&](std::string name, scenario::Scenario changed) {
    changes.push_back({std::move(name), {std::move(changed)}, std::nullopt});
  };
  const bool placed = work.placement_of_writes == ObjectPlacement::by_class;
  if (work.writers.count() > 1)
    add(placed ? "without placement" : "a placement handle per class",
        with_placement(s, placed ? ObjectPlacement::none : ObjectPlacement::by_class));
  add("a quarter less data", with_footprint(s, 0.75));
  add(kMoreFlash, with_more_flash(s, 0.1));
  const auto deletes = [](ObjectStore store) { return store != ObjectStore::slots; };
  if (std::ranges::any_of(work.writers.stores, deletes)) {
    add(work.trims ? "without trims" : "with trims", s);
    objects_of(changes.back().worn.scenario).trims = !work.trims;
  }
  return changes;
}

/// A serving scenario with other tiers.
template <class Change>
scenario::Scenario with_drives(scenario::Scenario s, Change change) {
  change(*dynamic_cast<ServingWorkload&>(*s.workload).tiers.drives);
  return s;
}

std::vector<WearSubject> changes_of_tier(const scenario::Scenario& s, const ServingWorkload& work) {
  std::vector<WearSubject> changes;
  const WornDrive worn = worn_by_tier(s, work);
  const auto add_served = [&](std::string name, const scenario::Scenario& served) {
    changes.push_back({std::move(name), worn_by_tier(served, *serving_of(served)), served});
  };
  const Bytes tier{objects_of(worn.scenario).writers.footprints.front().value * worn.scale};
  add_served("a quarter less data",
             with_drives(s, [&](DriveTierConfig& drives) { drives.capacity = Bytes{tier.value / 4 * 3}; }));
  const bool filtered = work.tiers.drives->admission != TierConfig{}.admission;
  add_served(filtered ? "every block is stored" : "stored on the second sighting",
             with_drives(s, [&](DriveTierConfig& drives) {
               drives.admission = filtered ? TierConfig{}.admission : "nth_sighting:n=2";
             }));
  if (work.has_files())
    add_served(work.tiers.drives->files->discard ? "deleted files are not trimmed" : "deleted files are trimmed",
               with_drives(s, [](DriveTierConfig& drives) { drives.files->discard = !drives.files->discard; }));
  changes.push_back({kMoreFlash, {with_more_flash(worn.scenario, 0.1), worn.scale}, std::nullopt});
  changes.push_back({"blocks fall out in the order in which they were written", worn, std::nullopt});
  objects_of(changes.back().worn.scenario).writers.orders = {ObjectOrder::in_turn};
  return changes;
}

}  // namespace

WearSubject subject_of(const scenario::Scenario& s) {
  if (const ServingWorkload* const work = serving_of(s)) return {"as it is", worn_by_tier(s, *work), s};
  objects_of(s);
  return {"as it is", {s}, std::nullopt};
}

std::vector<WearSubject> changes_of(const scenario::Scenario& s) {
  const ServingWorkload* const work = serving_of(s);
  return work != nullptr ? changes_of_tier(s, *work) : changes_of_objects(s);
}

}  // namespace csdsim::experiment
