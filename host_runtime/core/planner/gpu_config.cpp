#include "host_runtime/core/planner/gpu_config.h"

namespace csdsim::host {
namespace {
constexpr SimTime ms(std::int64_t v) { return SimTime::milliseconds(v); }
}  // namespace

void describe(ParamVisitor& v, GpuEfficiency& c) {
  const Range<Ratio> share{Ratio::of(1, 1000), Ratio{1, 1}};
  v.param("gemm", c.gemm, share, "Share of the peak rate: matrix products of many rows.",
          assumed("large cuBLAS products"));
  v.param("gemv", c.gemv, share, "Share of memory bandwidth: matrix products of few rows, bound by reading weights.",
          assumed("streaming kernels"));
  v.param("attention_prefill", c.attention_prefill, share, "Share of the peak rate: attention over a prompt.",
          assumed("fused attention kernels"));
  v.param("attention_decode", c.attention_decode, share, "Share of memory bandwidth: attention of single tokens.",
          assumed("published best is 83 % on H200"));
  v.param("elementwise", c.elementwise, share, "Share of memory bandwidth: norms, activations, additions.",
          assumed("streaming kernels"));
}

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
  v.param("kernel_launch", c.kernel_launch, {SimTime{}, ms(10)}, "Fixed time of an operator.",
          assumed("typical launch latency"));
  v.section("efficiency", c.efficiency, "Share of the peak that operators reach.");
}

}  // namespace csdsim::host
