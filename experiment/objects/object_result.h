// The result document of a run of objects without time.
#pragma once

#include <string_view>
#include <vector>

#include "base/metric.h"
#include "experiment/objects/object_workload.h"
#include "experiment/objects/wear_run.h"
#include "experiment/result.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

std::vector<MetricInfo> object_metrics();

/// The drive and the writers of a scenario whose workload is `work`.
WearSetup wear_setup(const scenario::Scenario& scenario, const ObjectWorkload& work);

scenario::RunResult object_result(const scenario::Scenario& scenario, const ObjectWorkload& work,
                                  const WearOutcome& out, const WallClock& clock);

}  // namespace csdsim::experiment
