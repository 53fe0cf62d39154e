// The parts of a generation result that follow from the configuration alone.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/metric.h"
#include "csd_model/device_config.h"
#include "host_runtime/core/plan/planner.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// The metrics of these parts: sizes, and section `resources`.
std::vector<MetricInfo> size_metrics();

/// Adds `weight_bytes`, the weights of the model, and `kv_cache_bytes`, K and V of all sequences after the last step.
/// Every token counts once: copies, such as keys that a drive keeps component-major too, and pages that are not full
/// are left out.
void add_sizes(nlohmann::ordered_json& metrics, const scenario::Scenario& s, const host::BatchLengths& lengths);

/// Section `resources`: what a drive with an attention engine takes of each resource of its FPGA, in sum and by unit,
/// what the FPGA has, and whether the drive fits (attention_engine/core/fpga_resources.h).
nlohmann::ordered_json fpga_resources(const csd_model::DeviceConfig& device);

}  // namespace csdsim::experiment
