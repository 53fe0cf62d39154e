// Measures the drives of a serving run: rates and latencies of whole KV blocks.
#pragma once

#include "experiment/serving/serving_workload.h"
#include "host_runtime/core/serving/engine/rates_transport.h"
#include "host_runtime/sysc/simulated_transport.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Writes and reads blocks of the tier on one new simulated drive, or I/Os of its files, as many at a time as the tier
/// does, then one alone.
/// The copies are those of the link between host and GPU.
host::TransportRates measured_rates(const scenario::Scenario& scenario, const ServingWorkload& work);

/// The drives and links of a serving run, with what a drive's transfers look like.
platform::PlatformParams serving_platform(const scenario::Scenario& scenario, const ServingWorkload& work);
/// `measures`: the rates of a drive, with as many transfers at a time as the tier has.
host::SimulatedTransportConfig transport_config(const scenario::Scenario& scenario, const ServingWorkload& work,
                                                bool measures = false);

}  // namespace csdsim::experiment
