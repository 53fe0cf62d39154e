// Derives module parameters that depend on the whole scenario: seed, data mode and share of the KV namespace.
#pragma once

#include <optional>

#include "host_runtime/core/machine/processor_backends.h"
#include "platform/platform_params.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// The configuration of a drive, without its selection source.
csd_model::DriveConfig drive_config(const scenario::Scenario& scenario);

/// Bytes that the block namespace of a drive exports in this scenario. UserError for a drive that cannot be built.
Bytes exported_capacity(const scenario::Scenario& scenario);
/// The same for checks; nothing for a drive that cannot be built, which other checks refuse.
std::optional<Bytes> exported_capacity_if_any(const scenario::Scenario& scenario);

platform::PlatformParams platform_params(const scenario::Scenario& scenario);

/// The link between host and each GPU.
host::LinkModel gpu_link_of(const scenario::Scenario& scenario);

}  // namespace csdsim::experiment
