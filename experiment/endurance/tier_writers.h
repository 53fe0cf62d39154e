// The writes of a serving run as a workload of objects that can be written for years.
#pragma once

#include <cstdint>

#include "experiment/objects/object_workload.h"
#include "experiment/serving/serving_workload.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// The objects of a scenario. UserError for another workload, and for a run with time.
const ObjectWorkload& objects_of(const scenario::Scenario& scenario);
ObjectWorkload& objects_of(scenario::Scenario& scenario);
/// The serving workload of a scenario; null for another one.
const ServingWorkload* serving_of(const scenario::Scenario& scenario);

/// A drive of a scenario, and what is written to it without time.
struct WornDrive {
  scenario::Scenario scenario;  ///< workload objects
  std::uint32_t scale = 1;      ///< the drive has so many times its planes, capacity and size of objects
};

/// One writer of tier blocks, which overwrites the slots of one of the tier's drives uniformly, or replaces the files
/// of its file system; what the file system writes beside them is left out. Blocks that fall out in another order wear
/// less. The drive may be a smaller copy, with fewer channels and dies and smaller blocks of the
/// tier, which has the same write amplification (docs/endurance.md). Collection in the background, refresh and blocks
/// that are bad from the beginning are left out.
WornDrive worn_by_tier(const scenario::Scenario& scenario, const ServingWorkload& work);

}  // namespace csdsim::experiment
