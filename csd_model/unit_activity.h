// The units of a drive's own engine among the stations of the drive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "attention_engine/sysc/attention_engine.h"
#include "csd_model/drive_activity.h"

namespace csdsim::csd_model {

/// Tells the drive's activity what the units of its own engine do.
class UnitActivity final : public engine::UnitObserver {
 public:
  UnitActivity(DriveActivity& activity, const engine::EngineConfig& config)
      : activity_(activity), units_{config.kernels, 1, config.argtopk_units} {}

  void unit_begins(engine::EngineUnit unit, SimTime work, SimTime softmax, bool page, SimTime at) override {
    activity_.begin(station(unit), work, units_[static_cast<std::size_t>(unit)], at);
    if (unit == engine::EngineUnit::kernels) activity_.add_softmax(softmax, work);
    if (page) activity_.work_on_page(work);
  }
  void unit_ends(engine::EngineUnit unit, SimTime at) override { activity_.end(station(unit), at); }

 private:
  static DriveStation station(engine::EngineUnit unit) { return kStations[static_cast<std::size_t>(unit)]; }

  static constexpr std::array<DriveStation, 3> kStations{DriveStation::kernels, DriveStation::scoring,
                                                         DriveStation::argtopk};

  DriveActivity& activity_;
  std::array<std::uint32_t, 3> units_;  ///< by EngineUnit
};

}  // namespace csdsim::csd_model
