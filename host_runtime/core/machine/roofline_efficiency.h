// Shares of a processor's peaks that operators reach, for GPUs and host cores.
#pragma once

#include "base/param.h"
#include "base/quantity.h"

namespace csdsim::host {

/// Share of peak that operators reach. Compute-bound operators scale the peak rate, the others memory bandwidth.
struct RooflineEfficiency {
  Ratio gemm = Ratio::of(7, 10);
  Ratio gemv = Ratio::of(8, 10);
  Ratio attention_prefill = Ratio::of(5, 10);
  Ratio attention_decode = Ratio::of(8, 10);
  Ratio elementwise = Ratio::of(8, 10);

  /// The same share for all operators.
  static constexpr RooflineEfficiency all(Ratio share) { return {share, share, share, share, share}; }
};

void describe(ParamVisitor& v, RooflineEfficiency& c);

}  // namespace csdsim::host
