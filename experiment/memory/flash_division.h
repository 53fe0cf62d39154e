// Divides the flash of the drives between their two namespaces in a generation run.
#pragma once

#include <string>

#include "experiment/generation/generation_workload.h"
#include "host_runtime/core/plan/system.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// What a system keeps in block namespaces; empty if nothing.
std::string kept_in_blocks(const host::SystemNeeds& needs);
inline bool keeps_blocks(const host::SystemNeeds& needs) { return !kept_in_blocks(needs).empty(); }

/// Share of the flash of each drive that the block namespace has, of a model that is known. All of it where the KV
/// namespace is not used; nothing where blocks are not; the stated share of background commands; and beside K and V
/// what weights or activations need: whole erase blocks on every plane, with those that the FTL keeps free.
Ratio block_share(const scenario::Scenario& s, const GenerationWorkload& work);

}  // namespace csdsim::experiment
