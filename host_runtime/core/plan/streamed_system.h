// The interface of an offload system that also runs for real, on the streams of a GPU
// (host_runtime/core/plan/offload_plan.h).
#pragma once

#include <optional>

#include "base/quantity.h"
#include "base/units.h"
#include "host_runtime/core/machine/gemm_rates.h"
#include "host_runtime/core/model/model_shape.h"
#include "host_runtime/core/plan/offload_plan.h"

namespace csdsim::host {

/// Rates that the plan of such a run is solved with.
struct StreamRates {
  Bandwidth link;          ///< from pinned host memory to the GPU
  ComputeRate gemm;        ///< rate of the matrix products that recompute K and V
  GemmRates by_rows = {};  ///< the same by their rows, if a preset has them
};

/// A capability beside OffloadSystem.
class StreamedSystem {
 public:
  virtual ~StreamedSystem() = default;

  /// True if the plan depends on rates: unset ones are an error then.
  virtual bool needs_rates(const ModelShape& model) const = 0;
  /// The plan of a run by the parameters. UserError for parameters that a real run does not have.
  virtual OffloadPlan stream_plan(const ModelShape& model, const std::optional<StreamRates>& rates) const = 0;
};

}  // namespace csdsim::host
