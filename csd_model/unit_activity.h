// The units of a drive's own engine among the stations of the drive.
#pragma once

#include <cstdint>

#include "attention_engine/sysc/attention_engine.h"
#include "csd_model/drive_activity.h"

namespace csdsim::csd_model {

/// Tells the drive's activity what the units of its own engine do.
class UnitActivity final : public engine::UnitObserver {
 public:
  UnitActivity(DriveActivity& activity, const engine::EngineConfig& config)
      : activity_(activity), kernels_(config.kernels), argtopk_units_(config.argtopk_units) {}

  void unit_begins(engine::EngineUnit unit, SimTime work, SimTime softmax, bool page, SimTime at) override {
    activity_.begin(station(unit), work, count(unit), at);
    if (unit == engine::EngineUnit::kernels) activity_.add_softmax(softmax, work);
    if (page) activity_.work_on_page(work);
  }
  void unit_ends(engine::EngineUnit unit, SimTime at) override { activity_.end(station(unit), at); }

 private:
  static DriveStation station(engine::EngineUnit unit) {
    switch (unit) {
      case engine::EngineUnit::kernels:
        return DriveStation::kernels;
      case engine::EngineUnit::scoring:
        return DriveStation::scoring;
      case engine::EngineUnit::argtopk:
        break;
    }
    return DriveStation::argtopk;
  }

  std::uint32_t count(engine::EngineUnit unit) const {
    return unit == engine::EngineUnit::kernels ? kernels_ : unit == engine::EngineUnit::argtopk ? argtopk_units_ : 1;
  }

  DriveActivity& activity_;
  std::uint32_t kernels_, argtopk_units_;
};

}  // namespace csdsim::csd_model
