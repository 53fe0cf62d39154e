// Work of the firmware's cores: lookups in the mapping tables, and other tasks.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/units.h"
#include "contracts/request_stages.h"
#include "csd_model/drive_activity.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/firmware_cores.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

/// Charges map lookups to the firmware's cores, which spend `time` per entry, and then to controller DRAM, from which
/// they read a burst per entry. Each entry is a piece of work of its own: the cores share those of a command. Whoever
/// can go on with a page as soon as it is found runs its lookups apart.
class MapLookups {
 public:
  MapLookups(SimTime time, FirmwareCores& cores, DramPort& dram, DriveActivity& activity)
      : time_(time), cores_(cores), dram_(dram), activity_(activity) {}

  /// Lookups cost nothing now: nothing has to be asked for them.
  bool are_free() const { return time_.ps == 0 && !dram_.limited(); }

  /// A lookup takes the time of a core and nothing else.
  bool take_cores_only() const { return time_.ps > 0 && !dram_.limited(); }
  /// Looks up one entry: tells `client`, which then calls found(). Precondition: take_cores_only().
  void find(WorkClient& client, std::uint64_t tag) {
    begin_spending(time_);
    cores_.run(time_, client, tag);
  }
  void found() { activity_.end(DriveStation::lookup_cores, sim_time_now()); }

  /// Calls `then` when all `entries` have been looked up, at once where that is free. `stages`, if not null, is told
  /// where the time went.
  template <class Work>
  void run(std::uint64_t entries, RequestStages* stages, Work then) {
    if (are_free()) return then();
    // Without time of cores, the entries are one transfer.
    if (time_.ps == 0 || entries <= 1) return piece(entries, stages, std::move(then));
    const auto all = std::make_shared<Rest<Work>>(entries, std::move(then));
    for (std::uint64_t i = 0; i < entries; ++i)
      piece(1, stages, [all] {
        if (--all->missing == 0) all->then();
      });
  }

  /// Calls `then` when the cores have spent `work` `pieces` times, each piece on one core; at once if it takes no time.
  template <class Work>
  void spend(SimTime work, std::uint64_t pieces, Work then) {
    if (work.ps == 0 || pieces <= 1) return spend(work * static_cast<std::int64_t>(pieces), std::move(then));
    const auto all = std::make_shared<Rest<Work>>(pieces, std::move(then));
    for (std::uint64_t i = 0; i < pieces; ++i)
      spend(work, [all] {
        if (--all->missing == 0) all->then();
      });
  }

  /// Calls `then` when a core has spent `work` on it, at once if it takes no time.
  template <class Work>
  void spend(SimTime work, Work then) {
    if (work.ps == 0) return then();
    begin_spending(work);
    cores_.run(work, [this, then = std::move(then)]() mutable {
      found();
      then();
    });
  }

 private:
  void begin_spending(SimTime work) {
    const SimTime load = activity_.attends() ? work : SimTime{};
    activity_.begin(DriveStation::lookup_cores, load, cores_.count(), sim_time_now());
  }
  template <class Work>
  struct Rest {
    Rest(std::uint64_t pieces, Work work) : missing(pieces), then(std::move(work)) {}
    std::uint64_t missing;
    Work then;
  };

  /// Entries that one core looks up.
  template <class Work>
  void piece(std::uint64_t entries, RequestStages* stages, Work then) {
    spend(time_ * static_cast<std::int64_t>(entries), [this, entries, stages, then = std::move(then)]() mutable {
      if (stages != nullptr) stages->mark(RequestStage::firmware, sim_time_now());
      auto done = [stages, then = std::move(then)]() mutable {
        if (stages != nullptr) stages->mark(RequestStage::dram, sim_time_now());
        then();
      };
      if (!dram_.limited()) return done();
      dram_.move(DramTraffic::map, DramPort::kEntryBurst * entries, std::move(done));
    });
  }

  SimTime time_;  ///< time of a core per entry
  FirmwareCores& cores_;
  DramPort& dram_;
  DriveActivity& activity_;
};

}  // namespace csdsim::csd_model
