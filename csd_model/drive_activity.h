// The time that a drive's commands spend at its stations.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "contracts/drive_station.h"
#include "contracts/page_op.h"

namespace csdsim::csd_model {

/// The division of a drive's time up to some moment; the first three parts add up to that time.
struct ActivitySplit {
  SimTime flash;   ///< the engine waited for pages
  SimTime engine;  ///< it computed, and no page read was in flight
  SimTime other;   ///< no attention task in the engine: link, firmware, or nothing to do
  /// The same time by the station that held the drive up; what is left over, no station worked in.
  PerStation<SimTime> stations;

  friend ActivitySplit operator-(const ActivitySplit& a, const ActivitySplit& b) {
    return {a.flash - b.flash, a.engine - b.engine, a.other - b.other, a.stations - b.stations};
  }
};

/// The time of a page in the stations that serve it, without waiting.
struct FlashDemand {
  SimTime sense;    ///< time of an array per page
  SimTime command;  ///< on the bus, per page
  Bandwidth channel_bandwidth{1};
  Bandwidth filter_bandwidth{};  ///< 0: unlimited
  std::uint32_t planes = 1;
  std::uint32_t channels = 1;
  std::uint32_t page_buffers = 0;  ///< per channel; 0: unlimited
  bool buffer_at_issue = true;     ///< a page has its buffer from the issue of its read on, not only its transfer
};

/// Divides time as it passes, in two ways. By kind: while pages are being read, time counts as flash, even if kernels
/// compute meanwhile. By station: several stations may work at a moment; the time then counts for the one with the most
/// work so far per unit, which holds up the others. A page buffer works from when a page gets it until a kernel has
/// consumed the page; while the page waits there for others, the buffer does no work of its own.
class DriveActivity {
 public:
  DriveActivity() = default;
  explicit DriveActivity(const FlashDemand& flash) : flash_(flash) {}

  void engine_task(int change, SimTime now) {
    settle(now);
    tasks_ += change;
  }
  /// The engine has a task. Work of other commands does not count, because it does not delay attention.
  bool attends() const { return tasks_ > 0; }
  void engine_pages(int change, SimTime now) {
    settle(now);
    page_batches_ += change;
  }

  /// A station takes work of `demand` divided by its `units`. It works until end() was called as often.
  void begin(DriveStation station, SimTime demand, std::uint32_t units, SimTime now) {
    settle(now);
    take(station);
    add_load(station, load(demand, units));
  }
  void end(DriveStation station, SimTime now) {
    settle(now);
    leave(station);
  }
  /// The power fails: no station works any more.
  void forget(SimTime now) {
    settle(now);
    active_ = {};
    working_ = 0;
    tasks_ = page_batches_ = 0;
  }
  /// Flash takes a batch of reads, and has done it.
  void begin_reads(std::span<const PageOp> ops, SimTime now);
  void end_reads(const FlashStages& stages, SimTime now);
  /// A page read that will hold a buffer is asked for, and its page has arrived.
  void page_asked(SimTime now) {
    if (flash_.buffer_at_issue) begin(DriveStation::page_buffers, {}, 1, now);
  }
  void page_arrived(const FlashStages& stages, SimTime now) {
    if (flash_.buffer_at_issue) return;
    begin(DriveStation::page_buffers, {}, 1, now);
    held_ += in_buffer(stages);
  }
  /// A kernel works on a page for so long; its buffer is held meanwhile.
  void work_on_page(SimTime time) {
    if (flash_.page_buffers > 0)
      add_load(DriveStation::page_buffers, load(time, flash_.page_buffers * flash_.channels));
  }
  /// `time` of new work `of` the kernels is softmax.
  void add_softmax(SimTime time, SimTime of) {
    softmax_ += static_cast<double>(time.ps);
    kernels_ += static_cast<double>(of.ps);
  }

  /// Lets a station work for the time that `busy` counts, which may be ahead of now. `busy` must outlive the activity.
  void watch(DriveStation station, const SimTime& busy, std::uint32_t units = 1) {
    watched_.push_back({station, &busy, units, busy, {}});
  }

  /// From `now` until `end`, while attention stands still, time divides as it did in a window. The stations have the
  /// load of the window, too, `times` over.
  void repeat(const ActivitySplit& window, SimTime end, const PerStation<double>& loads, double times, SimTime now);
  /// Work that the stations have had so far, in picoseconds per unit.
  const PerStation<double>& loads() const { return load_; }

  ActivitySplit until(SimTime now) {
    settle(now);
    return split_;
  }
  /// Time that the last page of each batch waited for its array, and for its channel.
  const PerStation<SimTime>& waited() const { return waited_; }
  /// Time of page buffers in use, summed over them.
  SimTime buffers_held(SimTime now) {
    settle(now);
    return held_;
  }

 private:
  /// A station that reserves time in advance.
  struct Watched {
    DriveStation station;
    const SimTime* busy;
    std::uint32_t units;
    SimTime seen;
    SimTime backlog;  ///< work that it has not done yet
    SimTime worked{};
  };
  static_assert(kDriveStations <= 32);

  /// How long a page was in its buffer when it is corrected, if it got the buffer at the start of its transfer.
  static SimTime in_buffer(const FlashStages& stages) {
    return stages[static_cast<std::size_t>(FlashStage::transfer)] + stages[static_cast<std::size_t>(FlashStage::ecc)];
  }
  static constexpr std::uint32_t bit(DriveStation station) { return 1U << static_cast<unsigned>(station); }
  void take(DriveStation station) {
    if (++active_[station] > 1) return;
    if (working_ == 0 || outdoes(station)) most_ = station;
    working_ |= bit(station);
  }
  void leave(DriveStation station) {
    if (--active_[station] > 0) return;
    working_ &= ~bit(station);
    if (station == most_) find_most();
  }
  /// `station` holds the others up more than most_ does. Of several with the same load, the first one does.
  bool outdoes(DriveStation station) const {
    return load_[station] > load_[most_] || (load_[station] == load_[most_] && station < most_);
  }
  void find_most();
  /// The load that a read of one page is for its stations. It follows from the bytes that cross the channel and from
  /// how many times the page is read.
  struct PageLoad {
    std::uint32_t bytes = ~0U;
    std::uint32_t times = 0;
    double arrays = 0, channels = 0, filters = 0;
  };
  PageLoad load_of(std::uint32_t bytes, std::uint32_t times) const;
  bool filters() const { return flash_.filter_bandwidth.bytes_per_second > 0; }
  static double load(SimTime demand, std::uint32_t units) { return static_cast<double>(demand.ps) / units; }
  void add_load(DriveStation station, double load) {
    load_[station] += load;
    if ((working_ & bit(station)) != 0 && outdoes(station)) most_ = station;
  }
  void settle(SimTime now) {
    if (now != since_) pass_to(now);
  }
  void pass_to(SimTime now);
  void repeat_until(SimTime end);
  void blame_watched(SimTime passed);
  void charge(DriveStation station, SimTime time);

  FlashDemand flash_;
  std::int64_t tasks_ = 0;
  std::int64_t page_batches_ = 0;
  SimTime since_;
  ActivitySplit split_;
  ActivitySplit repeated_;  ///< how time divides until repeats_until_
  SimTime repeats_until_;
  PerStation<std::int64_t> active_;
  std::uint32_t working_ = 0;  ///< bit(station) of those that are active
  DriveStation most_{};        ///< the active station with the most load; any station where none is active
  PerStation<double> load_;    ///< picoseconds per unit
  double softmax_ = 0, kernels_ = 0;
  std::vector<Watched> watched_;
  bool backlog_ = false;  ///< some of them have work that they have not done yet
  PerStation<SimTime> waited_;
  SimTime held_;
  PageLoad page_load_;  ///< load of the last page
};

}  // namespace csdsim::csd_model
