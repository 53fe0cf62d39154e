// Units of a drive that are SystemC modules with Fidelity::at.
#pragma once

#include <cstdint>
#include <functional>

#include "attention_engine/sysc/engine_units.h"
#include "csd_model/drive_config.h"
#include "csd_model/drive_factories.h"
#include "simulation/unit_module.h"
#include "simulation/unit_pool.h"

namespace csdsim::csd_model {

/// Parts of a drive that are modules behind signals with Fidelity::at. What `amount` of their pins counts:
enum class DriveUnit : std::uint8_t {
  kernel,        ///< cycles of engine.clock; `kind`: engine::UnitTask
  scoring,       ///< likewise
  argtopk,       ///< elements; `kind`: engine::UnitTask
  lookup_core,   ///< picoseconds
  command_core,  ///< likewise, of nvme.firmware_cores; `kind`: see NvmeController::kIoKind. Only with a firmware_time
  dram_port,     ///< bytes; `kind`: DramTraffic + 1. Only with a bandwidth
  filter         ///< bytes of a page; `index` is the channel. Only with a bandwidth
};

/// Makes the units of a drive: those of a factory, or the model's. The results are null with Fidelity::fast.
class UnitMaker {
 public:
  /// Both must outlive the maker, but not what it returns. Throws UserError for a factory with Fidelity::fast.
  UnitMaker(const DriveConfig& config, const DriveUnitFactory& own);

  engine::EngineUnitFactory engine() const;
  UnitPool::Make lookup_cores() const;
  UnitPool::Make command_cores() const;
  /// Makes the filter of a channel; parts without a module stand for the model's. Null without a factory.
  UnitPool::Make filters() const;
  /// Only called where the bandwidth is limited.
  UnitPool::Make dram_port() const;

 private:
  UnitPool::Make of(DriveUnit unit, UnitPool::Make model) const;
  UnitPool::Make cores(DriveUnit unit) const;

  const DriveConfig& config_;
  const DriveUnitFactory& own_;
};

}  // namespace csdsim::csd_model
