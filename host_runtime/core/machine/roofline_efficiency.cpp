#include "host_runtime/core/machine/roofline_efficiency.h"

namespace csdsim::host {

void describe(ParamVisitor& v, RooflineEfficiency& c) {
  const Range<Ratio> share{Ratio::of(1, 1000), Ratio{1, 1}};
  v.param("gemm", c.gemm, share, "Of the peak rate: matrix products of many rows.", assumed("large cuBLAS products"));
  v.param("gemv", c.gemv, share, "Of memory bandwidth: matrix products of few rows, bound by weights.",
          assumed("streaming kernels"));
  v.param("attention_prefill", c.attention_prefill, share, "Of the peak rate: attention over a prompt.",
          assumed("fused attention kernels"));
  v.param("attention_decode", c.attention_decode, share, "Of memory bandwidth: attention of single tokens.",
          assumed("published best is 83 % on H200"));
  v.param("elementwise", c.elementwise, share, "Of memory bandwidth: norms, activations, additions.",
          assumed("streaming kernels"));
}

}  // namespace csdsim::host
