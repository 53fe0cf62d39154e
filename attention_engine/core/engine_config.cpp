#include "attention_engine/core/engine_config.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/param.h"
#include "base/rounding.h"

namespace csdsim::engine {

void describe(ParamVisitor& v, ScoringConfig& c) {
  constexpr Range<std::uint32_t> kLanes{1, 1'048'576};
  v.optional("fp16_lanes", c.fp16_lanes, "none", kLanes,
             "FP16 products of the scoring unit in a cycle; none: scores in FP16 run on the attention kernels.",
             assumed("engines that attend need no such unit"));
  v.optional("int8_lanes", c.int8_lanes, "none", kLanes,
             "INT8 products of the scoring unit in a cycle; none: the engine does not score in INT8.",
             assumed("HillInfer 4.4 has such a unit and states no width"));
  v.optional("int4_lanes", c.int4_lanes, "none", kLanes,
             "Products of INT8 and INT4 of the scoring unit in a cycle; none: the engine does not score in INT4.",
             assumed("HillInfer 4.4 has such a unit and states no width"));
}

void describe(ParamVisitor& v, EngineConfig& c) {
  v.param("clock", c.clock, {Frequency{1'000'000}, Frequency{10'000'000'000}}, "Clock of the attention engine.",
          paper("InstInfer V-A, of the prototype"));
  v.param("kernels", c.kernels, {1, 1024}, "Attention kernels (GeMV and softmax) side by side.",
          paper("InstInfer IV-B"));
  v.param("macs_per_cycle", c.macs_per_cycle, {1, 1'048'576}, "FP16 multiply-accumulates of a kernel in a cycle.",
          assumed("a kernel has 768 DSPs; the figures of InstInfer fit 123 a cycle over both kernels"));
  v.param("softmax_per_cycle", c.softmax_per_cycle, {1, 1'048'576}, "Exponentials of a kernel in a cycle.",
          assumed("no paper states it"));
  v.param("dequantised_per_cycle", c.dequantised_per_cycle, {1, 1'048'576},
          "Elements of K and V of few bits that a kernel takes in and dequantises in a cycle, beside its other work.",
          assumed("as many as a kernel multiplies in a cycle, so that it does not wait for them; no paper states it"));
  v.param("argtopk_units", c.argtopk_units, {1, 1024}, "Argtopk units side by side.", paper("InstInfer IV-B: one"));
  v.param("argtopk_per_cycle", c.argtopk_per_cycle, {1, 1'048'576}, "Elements that an argtopk unit takes in a cycle.",
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
  v.param("fpga", c.fpga, "The FPGA that the engine is to fit.", assumed("none: the result states what it takes"));
  v.param("fpga_check", c.fpga_check, "What happens if the engine does not fit the FPGA that `fpga` names.",
          assumed("a drive that does not fit cannot be built"));
  v.section("scoring", c.scoring, "A unit for token scores beside the attention kernels.");
}

std::uint64_t UnitSpeeds::faster(std::uint64_t cycles, double speed) {
  return speed == 1 ? cycles : static_cast<std::uint64_t>(std::llround(static_cast<double>(cycles) / speed));
}

SimTime EngineConfig::argtopk_time(std::uint64_t elements) const {
  return cycles_time(UnitSpeeds::faster(ceil_div(elements, argtopk_per_cycle), speeds.argtopk), clock);
}

void EngineConfig::validate() const {
  const auto require = [](std::uint64_t value, std::string_view name) {
    if (value == 0) throw UserError(fmt::format("engine.{} is 0: it must be at least 1", name));
  };
  require(clock.hertz, "clock");
  require(kernels, "kernels");
  require(macs_per_cycle, "macs_per_cycle");
  require(softmax_per_cycle, "softmax_per_cycle");
  require(dequantised_per_cycle, "dequantised_per_cycle");
  require(argtopk_units, "argtopk_units");
  require(argtopk_per_cycle, "argtopk_per_cycle");
  require(jobs_in_flight, "jobs_in_flight");
  require(buffer.value, "buffer");
  if (page_buffers > 0 && intake == Intake::phase)
    throw UserError("engine.intake is phase: a phase may have more pages than there are page buffers");
  if (page_buffers > 0 && intake == Intake::arrival && !overlap_flash)
    throw UserError("engine.intake is arrival: flash's turn would never end while all page buffers are full");
}

void EngineConfig::require(ScorePrecision precision) const {
  if (scores(precision)) return;
  const std::string_view name = precision == ScorePrecision::int8 ? "int8" : "int4";
  throw UserError(
      fmt::format("the engine does not score in {}: give its scoring unit lanes, engine.scoring.{}_lanes", name, name));
}

}  // namespace csdsim::engine
