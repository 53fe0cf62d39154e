// The units of the attention engine as SystemC modules: `fidelity: at`.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <systemc>

#include "attention_engine/core/engine_config.h"
#include "attention_engine/core/head_scheduler.h"
#include "simulation/unit_module.h"
#include "simulation/unit_pool.h"

namespace csdsim::engine {

/// Takes in `amount` elements, argtopk_per_cycle in a cycle. Its kinds of request are those of UnitTask.
class ArgtopkUnit : public UnitModule {
 public:
  ArgtopkUnit(const sc_core::sc_module_name& name, const EngineConfig& config) : UnitModule(name), config_(config) {}

 protected:
  SimTime time_of(std::uint64_t elements, std::uint32_t) const override { return config_.argtopk_time(elements); }

 private:
  EngineConfig config_;
};

/// An attention kernel, or the scoring unit: works for `amount` cycles on a page or a phase.
class CycleUnit : public UnitModule {
 public:
  CycleUnit(const sc_core::sc_module_name& name, Frequency clock) : UnitModule(name), clock_(clock) {}

 protected:
  SimTime time_of(std::uint64_t cycles, std::uint32_t) const override { return cycles_time(cycles, clock_); }

 private:
  Frequency clock_;
};

/// Makes unit `index` of a kind, below config.kernels or config.argtopk_units; there is one scoring unit.
using EngineUnitFactory = std::function<UnitParts(EngineUnit unit, std::uint32_t index, const EngineConfig& config)>;

/// The units of the model.
UnitParts make_engine_unit(EngineUnit unit, std::uint32_t index, const EngineConfig& config);

/// The pools of an engine's units, and what the scheduler gives them.
class EngineUnits : public sc_core::sc_module, public UnitPort {
 public:
  using Ended = std::function<void(const UnitPool::End&)>;

  EngineUnits(const sc_core::sc_module_name& name, const EngineConfig& config, const EngineUnitFactory& make,
              const Ended& ended);

  void begin(const Work& work, SimTime at) override;
  SimTime ahead(EngineUnit unit, SimTime now) const override { return pool(unit).ahead(now); }
  void trace(sc_core::sc_trace_file* file) const override;

 private:
  UnitPool& pool(EngineUnit unit) const { return *pools_[static_cast<std::size_t>(unit)]; }

  std::array<std::unique_ptr<UnitPool>, 3> pools_;  ///< by EngineUnit
};

}  // namespace csdsim::engine
