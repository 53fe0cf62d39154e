// Measured GPU times of a run: from the GPU or an earlier result, and into the result.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "host_runtime/core/machine/gpu_model.h"
#include "host_runtime/core/model/model_shape.h"

namespace csdsim::experiment {

/// Null where times are modelled. Operators of `model` are measured on one layer of it. UserError if they are to be
/// measured and there is no GPU, or the result that they are to be taken from has none; asking it for an operator that
/// it lacks is one too.
std::shared_ptr<host::OperatorTable> operator_times(const host::GpuConfig& gpu, const host::ModelShape& model);

/// [{op, flops, weight_bytes, activation_bytes, launches, picoseconds}], in a fixed order.
nlohmann::ordered_json to_json(const host::OperatorTable& table);

}  // namespace csdsim::experiment
