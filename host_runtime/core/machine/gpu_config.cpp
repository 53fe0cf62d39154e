#include "host_runtime/core/machine/gpu_config.h"

namespace csdsim::host {
void describe(ParamVisitor& v, GpuConfig& c) {
  v.preset("gpu", c.preset);
  v.param("timing", c.timing, "Where operator times come from.", assumed("works without a GPU"));
  v.optional("times", c.times, "none",
             "For timing: measured, the result.json of an earlier run, whose times are used; no GPU is needed.",
             assumed("this machine's GPU is measured"));
  v.param("fp16_rate", c.fp16_rate, {ComputeRate{1'000'000'000}, ComputeRate{1'000'000'000'000'000'000}},
          "Peak dense FP16 rate of the tensor cores.", datasheet("NVIDIA RTX A6000"));
  v.param("memory_bandwidth", c.memory_bandwidth, {Bandwidth{1'000'000'000}, Bandwidth{100'000'000'000'000}},
          "Peak bandwidth of GPU memory.", datasheet("NVIDIA RTX A6000"));
  v.param("memory", c.memory, {Bytes::mib(1), Bytes::gib(4096)}, "GPU memory.", paper("InstInfer VI-A"));
  v.param("kernel_launch", c.kernel_launch, {SimTime{}, SimTime::milliseconds(10)}, "Fixed time of an operator.",
          assumed("typical launch latency"));
  v.section("efficiency", c.efficiency, "Share of the peak that operators reach.");
  v.section("gemm_by_rows", c.gemm_by_rows,
            "Rates of matrix products by their rows; the split of KVPR is solved with them.");
}

}  // namespace csdsim::host
