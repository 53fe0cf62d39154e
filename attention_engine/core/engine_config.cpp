#include "attention_engine/core/engine_config.h"

#include "base/param.h"

namespace csdsim::engine {

void describe(ParamVisitor& v, EngineConfig& c) {
  v.param("clock", c.clock, {Frequency{1'000'000}, Frequency{10'000'000'000}}, "Clock of the attention engine.",
          paper("InstInfer V-A, of the prototype"));
  v.param("kernels", c.kernels, {1, 1024}, "Attention kernels (GeMV and softmax) side by side.",
          paper("InstInfer IV-B"));
  v.param("macs_per_cycle", c.macs_per_cycle, {1, 1'048'576}, "FP16 multiply-accumulates of a kernel in a cycle.",
          assumed("a kernel has 768 DSPs; the figures of InstInfer fit 123 a cycle over both kernels"));
  v.param("softmax_per_cycle", c.softmax_per_cycle, {1, 1'048'576}, "Exponentials of a kernel in a cycle.",
          assumed("no paper states it"));
  v.param("argtopk_per_cycle", c.argtopk_per_cycle, {1, 1'048'576}, "Elements that the argtopk unit takes in a cycle.",
          assumed("no paper states it"));
  v.param("jobs_in_flight", c.jobs_in_flight, {1, 65'536}, "Heads that the engine works on at the same time.",
          assumed("enough to hide a tR; no paper states it"));
  v.param("buffer", c.buffer, {Bytes{512}, Bytes::gib(16)}, "Memory for pages on their way into the kernels.",
          assumed("of the order of the Zynq-7045's block RAM"));
  v.param("buffer_memory", c.buffer_memory,
          "Where that memory is. In DRAM, it takes its share of the capacity, and what a head keeps there is written "
          "and read once.",
          assumed("block RAM of the FPGA"));
  v.param("intake", c.intake, "What a kernel takes in at once.",
          assumed("finite page buffers need not hold a phase; InstInfer does not say when a kernel starts"));
}

}  // namespace csdsim::engine
