#include "csd_model/drive_units.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/error.h"

namespace csdsim::csd_model {
namespace {

/// A firmware core of the model.
class FirmwareCore final : public UnitModule {
 public:
  explicit FirmwareCore(const sc_core::sc_module_name& name) : UnitModule(name) {}

 protected:
  SimTime time_of(std::uint64_t picoseconds, std::uint32_t) const override {
    return {static_cast<std::int64_t>(picoseconds)};
  }
};

/// A DRAM port of the model.
class BandwidthPort final : public UnitModule {
 public:
  BandwidthPort(const sc_core::sc_module_name& name, Bandwidth bandwidth) : UnitModule(name), bandwidth_(bandwidth) {}

 protected:
  SimTime time_of(std::uint64_t bytes, std::uint32_t) const override { return transfer_time(Bytes{bytes}, bandwidth_); }

 private:
  Bandwidth bandwidth_;
};

DriveUnit drive_unit(engine::EngineUnit unit) {
  switch (unit) {
    case engine::EngineUnit::kernels:
      return DriveUnit::kernel;
    case engine::EngineUnit::scoring:
      return DriveUnit::scoring;
    case engine::EngineUnit::argtopk:
      break;
  }
  return DriveUnit::argtopk;
}

}  // namespace

UnitMaker::UnitMaker(const DriveConfig& config, const DriveUnitFactory& own) : config_(config), own_(own) {
  if (own && config.fidelity != Fidelity::at) throw UserError("drive: units of your own need Fidelity::at");
}

UnitPool::Make UnitMaker::of(DriveUnit unit, UnitPool::Make model) const {
  if (config_.fidelity == Fidelity::fast) return nullptr;
  return [own = own_, unit, model = std::move(model)](std::uint32_t index) {
    UnitParts parts = own ? own(unit, index) : UnitParts{};
    return parts.module != nullptr ? std::move(parts) : model(index);
  };
}

engine::EngineUnitFactory UnitMaker::engine() const {
  if (config_.fidelity == Fidelity::fast) return nullptr;
  return [own = own_](engine::EngineUnit unit, std::uint32_t index, const engine::EngineConfig& config) {
    UnitParts parts = own ? own(drive_unit(unit), index) : UnitParts{};
    return parts.module != nullptr ? std::move(parts) : engine::make_engine_unit(unit, index, config);
  };
}

UnitPool::Make UnitMaker::cores(DriveUnit unit) const {
  return of(unit, [](std::uint32_t index) {
    return parts_of(std::make_unique<FirmwareCore>(fmt::format("core{}", index).c_str()));
  });
}

UnitPool::Make UnitMaker::lookup_cores() const { return cores(DriveUnit::lookup_core); }

UnitPool::Make UnitMaker::command_cores() const { return cores(DriveUnit::command_core); }

UnitPool::Make UnitMaker::filters() const {
  if (!own_) return nullptr;
  return [own = own_](std::uint32_t channel) { return own(DriveUnit::filter, channel); };
}

UnitPool::Make UnitMaker::dram_port() const {
  return of(DriveUnit::dram_port, [bandwidth = config_.dram_bandwidth](std::uint32_t) {
    return parts_of(std::make_unique<BandwidthPort>("unit", *bandwidth));
  });
}

}  // namespace csdsim::csd_model
