#include "attention_engine/sysc/engine_units.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace csdsim::engine {

UnitParts make_engine_unit(EngineUnit unit, std::uint32_t index, const EngineConfig& config) {
  switch (unit) {
    case EngineUnit::argtopk:
      return parts_of(std::make_unique<ArgtopkUnit>(fmt::format("unit{}", index).c_str(), config));
    case EngineUnit::kernels:
    case EngineUnit::scoring:
      return parts_of(std::make_unique<CycleUnit>(fmt::format("unit{}", index).c_str(), config.clock));
  }
  throw InternalError("unknown unit of an engine");
}

EngineUnits::EngineUnits(const sc_core::sc_module_name& name, const EngineConfig& config, const EngineUnitFactory& make,
                         const Ended& ended)
    : sc_module(name) {
  const auto add = [&](EngineUnit unit, const char* of_pool, std::uint32_t count) {
    pools_[static_cast<std::size_t>(unit)] = std::make_unique<UnitPool>(
        of_pool, count, [&](std::uint32_t index) { return make(unit, index, config); }, ended);
  };
  add(EngineUnit::kernels, "kernels", config.kernels);
  add(EngineUnit::scoring, "scoring", 1);
  add(EngineUnit::argtopk, "argtopk", config.argtopk_units);
}

void EngineUnits::begin(const Work& work, SimTime) {
  pool(work.unit).request(
      {.id = work.id, .amount = work.amount, .kind = static_cast<std::uint32_t>(work.task), .expected = work.time});
}

void EngineUnits::trace(sc_core::sc_trace_file* file) const {
  for (const auto& pool : pools_) pool->trace(file);
}

}  // namespace csdsim::engine
