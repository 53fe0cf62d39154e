// The units of a part of a drive, or of the host, as tracks and counters of a trace.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/trace.h"
#include "base/work_observer.h"

namespace csdsim::report {

/// Puts slices that overlap on different tracks. Slices come in the order of their ends.
class TraceLanes {
 public:
  /// The first lane that is free at `start`; it is taken until `end`.
  std::uint32_t take(SimTime start, SimTime end);

 private:
  std::vector<SimTime> free_at_;
};

/// A counter of bytes per second. A value is the mean over a window of time; the windows double in length whenever
/// 4,000 values have been written, so that a long run has few.
class RateCounter {
 public:
  RateCounter(TraceSink& sink, TraceTrack track, std::string name)
      : sink_(sink), track_(track), name_(std::move(name)) {}

  /// `bytes` move evenly from `start` to `end`. Transfers may come out of order by a few windows; older ones count in
  /// the oldest window that is not written yet.
  void add(SimTime start, SimTime end, std::uint64_t bytes);
  /// Writes what is left; nothing moves afterwards.
  void finish();

 private:
  void write_before(std::int64_t end);

  TraceSink& sink_;
  TraceTrack track_;
  std::string name_;
  SimTime window_ = SimTime::microseconds(10);
  std::int64_t next_ = 0;                   ///< first window that is not written
  std::map<std::int64_t, double> windows_;  ///< bytes of the windows from next_ on
  double last_ = 0;                         ///< value that was written last
  std::uint64_t written_ = 0;
};

class UnitTracks final : public WorkObserver {
 public:
  /// How the units are shown.
  struct Style {
    std::function<std::string(std::uint32_t unit)> name;
    std::function<std::uint32_t(std::uint32_t unit)> place = {};  ///< order of the tracks; unset: of creation
    std::string amount = {};                                      ///< name of the argument; empty: none
    std::function<std::string(std::uint32_t unit)> level = {};    ///< name of its counter
    std::string rate = {};      ///< name of a counter of bytes per second over all units; empty: none
    bool rate_by_unit = false;  ///< one for each unit instead, `rate` behind its name
    bool overlaps = false;      ///< work of a unit overlaps: it has as many tracks as it needs
    bool async = false;         ///< work of a unit overlaps without limit
  };
  /// `sink` must outlive the tracks.
  UnitTracks(TraceSink& sink, std::uint32_t process, Style style);

  void work(std::uint32_t unit, std::string_view what, SimTime start, SimTime end, std::uint64_t amount) override;
  void level(std::uint32_t unit, std::uint64_t value, SimTime at) override;
  void finish();

 private:
  TraceTrack track(std::uint32_t unit, std::uint32_t lane);

  TraceSink& sink_;
  std::uint32_t process_;
  Style style_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, TraceTrack> tracks_;  ///< by unit and lane
  std::map<std::uint32_t, TraceLanes> lanes_;
  std::map<std::uint32_t, RateCounter> rates_;  ///< by unit, or of all
};

}  // namespace csdsim::report
