// Checks that controller DRAM holds the tails and tables of all layers of a model.
#pragma once

#include "csd_model/drive.h"
#include "ftl/kv/kv_policy.h"
#include "host_runtime/core/plan/kv_division.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::experiment {

/// Sampled runs hold few layers, so a drive that all of them overfill would not refuse: this works out the tails and
/// tables of all `layers` in every step, of sequences of shape `shape` in drives that hold their part of `division`.
/// UserError where they do not fit.
void check_controller_dram(const csd_model::DriveConfig& drive, const ftl::KvMappingPolicy& policy,
                           const ftl::KvShape& shape, const ftl::KvLayout& layout, const host::BatchLengths& workload,
                           const host::KvDivision& division, std::uint32_t layers);

}  // namespace csdsim::experiment
