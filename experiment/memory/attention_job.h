// The job that a generation run gives an engine for one head.
#pragma once

#include <cstdint>

#include "attention_engine/core/head_job.h"
#include "host_runtime/core/model/model_shape.h"
#include "host_runtime/core/plan/system.h"

namespace csdsim::experiment {

/// Attention to a KV head of a sequence of `context` tokens, by the method of the system.
engine::HeadJob attention_job(const host::OffloadSystem& system, const host::ModelShape& model, std::uint32_t context);

}  // namespace csdsim::experiment
