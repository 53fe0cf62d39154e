// What the firmware's cores are given to do: looking pages up in the mapping tables, and other work.
#pragma once

#include <cstdint>
#include <utility>

#include "base/request_stages.h"
#include "base/units.h"
#include "csd_model/drive_activity.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/firmware_cores.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

/// Charges map lookups to a firmware core, which spends `time` per entry, and then to controller DRAM, from which it
/// reads a burst per entry.
class MapLookups {
 public:
  MapLookups(SimTime time, FirmwareCores& cores, DramPort& dram, DriveActivity& activity)
      : time_(time), cores_(cores), dram_(dram), activity_(activity) {}

  /// Lookups cost nothing now: nothing has to be asked for them.
  bool are_free() const { return time_.ps == 0 && !dram_.limited(); }

  /// Calls `then` when `entries` have been looked up, at once where that is free. `stages`, if not null, is told where
  /// the time went.
  template <class Work>
  void run(std::uint64_t entries, RequestStages* stages, Work then) {
    if (are_free()) return then();
    spend(time_ * static_cast<std::int64_t>(entries), [this, entries, stages, then = std::move(then)]() mutable {
      if (stages != nullptr) stages->mark(RequestStage::firmware, sim_time_now());
      auto found = [stages, then = std::move(then)]() mutable {
        if (stages != nullptr) stages->mark(RequestStage::dram, sim_time_now());
        then();
      };
      if (!dram_.limited()) return found();
      dram_.move(DramTraffic::map, DramPort::kEntryBurst * entries, std::move(found));
    });
  }

  /// Calls `then` when a core has spent `work` on it, at once if it takes no time.
  template <class Work>
  void spend(SimTime work, Work then) {
    if (work.ps == 0) return then();
    const SimTime load = activity_.attends() ? work : SimTime{};
    activity_.begin(DriveStation::lookup_cores, load, cores_.count(), sim_time_now());
    cores_.run(work, [this, then = std::move(then)]() mutable {
      activity_.end(DriveStation::lookup_cores, sim_time_now());
      then();
    });
  }

 private:
  SimTime time_;  ///< of a core, per entry
  FirmwareCores& cores_;
  DramPort& dram_;
  DriveActivity& activity_;
};

}  // namespace csdsim::csd_model
