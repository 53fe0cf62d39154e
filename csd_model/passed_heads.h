// Attention that sampled runs do not simulate in a drive: the heads that commands pass over.
#pragma once

#include "attention_engine/core/head_sampler.h"
#include "csd_model/drive_activity.h"
#include "csd_model/drive_totals.h"
#include "csd_model/station_times.h"

namespace csdsim::nfc {
class FlashTarget;
}

namespace csdsim::csd_model {

class Drive;
class FirmwareCores;
class KvService;

/// How far off the time of the heads passed over may be, summed over the commands so far.
struct PassedHeadsError {
  double variance = 0;  ///< squared seconds, of independent errors
  double drift = 0;     ///< seconds, of errors that are alike; signed

  friend PassedHeadsError operator-(const PassedHeadsError& a, const PassedHeadsError& b) {
    return {a.variance - b.variance, a.drift - b.drift};
  }
};

/// Lets flash and firmware stand still together with the engine, and extrapolates what the drive would have done: the
/// difference of its totals over the window of the measured heads, by pages or by heads. The time of the standstill
/// divides as that of the window did. Links and the controller's firmware work per command, not per head.
class PassedHeads final : public engine::HeadSamplingPort {
 public:
  /// All must outlive it.
  PassedHeads(const Drive& drive, const KvService& kv, nfc::FlashTarget& flash, FirmwareCores& cores,
              DriveActivity& activity)
      : drive_(drive), kv_(kv), flash_(flash), cores_(cores), activity_(activity) {}

  bool steady() const override;
  std::uint64_t page_ops() override;
  void window_begins() override { begin_ = mark(); }
  void window_ends() override { end_ = mark(); }
  void pass_over(const engine::PassedOver& heads) override;

  /// What has been passed over up to `now`, the current time: work, and times of stations.
  DriveTotals work(SimTime now) const;
  StationTimes stations(SimTime now) const;
  std::uint64_t heads() const { return heads_; }
  const PassedHeadsError& error() const { return error_; }

 private:
  struct Mark {
    DriveTotals totals;
    StationTimes stations;
    ActivitySplit activity;
    PerStation<double> loads;
    std::uint64_t map_bytes = 0;  ///< bytes of controller DRAM that lookups read
  };
  struct Passed {
    DriveTotals work;
    StationTimes stations;
  };
  Mark mark() const;
  double part(SimTime now) const;

  const Drive& drive_;
  const KvService& kv_;
  nfc::FlashTarget& flash_;
  FirmwareCores& cores_;
  DriveActivity& activity_;
  Mark begin_, end_;
  Passed before_;  ///< sum over earlier standstills
  Passed last_;    ///< the last standstill, which lasts from since_ to until_
  SimTime since_, until_;
  std::uint64_t heads_ = 0;
  PassedHeadsError error_;
};

}  // namespace csdsim::csd_model
