// Counters of the flash. They are integers; ratios and shares are computed where they are printed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "contracts/page_op.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::nfc {

inline constexpr std::size_t kPageOpKinds = 3;

/// How long the bus of one channel was occupied, by use.
struct ChannelBusy {
  SimTime command;   ///< command cycles of reads, programs and erases, of their suspension and resumption
  SimTime data_out;  ///< data-outs of reads, their setup included
  SimTime data_in;   ///< data of programs
  SimTime status{};  ///< status polls
  SimTime select{};  ///< switching to another package
  constexpr SimTime total() const { return command + data_out + data_in + status + select; }
  bool operator==(const ChannelBusy&) const = default;
};

/// Programs and erases whose array time is counted already, because they were granted, and not over yet. A timeline
/// grants ahead of simulated time. Suspensions are left out.
class UnfinishedArrayTime {
 public:
  explicit UnfinishedArrayTime(std::uint32_t planes) : planes_(planes) {}

  /// An array works from `end` - `time` on, or after what it works on before.
  void add(PlaneId plane, PageOpKind kind, SimTime time, SimTime end) {
    std::vector<Work>& works = planes_[plane.value];
    if (!works.empty() && works.front().end <= passed_)
      std::erase_if(works, [&](const Work& work) { return work.end <= passed_; });
    if (!works.empty()) end = std::max(end, works.back().end + time);
    works.push_back({kind, time, end});
  }
  /// Nothing is worked on any more.
  void clear() {
    std::ranges::for_each(planes_, [](std::vector<Work>& works) { works.clear(); });
  }
  /// Nobody will ask for times before `now`.
  void pass(SimTime now) { passed_ = now; }
  /// Time after `now` of operations of this kind, summed over planes.
  SimTime after(SimTime now, PageOpKind kind) const {
    SimTime sum;
    for (const std::vector<Work>& works : planes_)
      for (const Work& work : works)
        if (work.kind == kind && work.end > now) sum += std::min(work.end - now, work.time);
    return sum;
  }
  /// It is no total: two models are equal if their totals are.
  bool operator==(const UnfinishedArrayTime&) const { return true; }

 private:
  struct Work {
    PageOpKind kind = PageOpKind::read;
    SimTime time;
    SimTime end;
  };
  std::vector<std::vector<Work>> planes_;  ///< [PlaneId], in order
  SimTime passed_;
};

/// Totals since construction. An operation is counted at its last bus grant for command or data; bus time is counted at
/// each grant.
struct FlashStatistics {
  template <class T>
  using ByClassAndKind = std::array<std::array<T, kPageOpKinds>, kOpClasses>;

  ByClassAndKind<std::uint64_t> ops{};             ///< page operations, [OpClass][PageOpKind]
  ByClassAndKind<std::uint64_t> bytes{};           ///< bytes over the channels, [OpClass][PageOpKind]
  std::array<SimTime, kPageOpKinds> array_time{};  ///< sensing (retries too), programming, erasing, summed over planes
  std::vector<ChannelBusy> channels;               ///< [ChannelId]
  std::vector<SimTime> plane_busy;     ///< [PlaneId], from the grant of a command until the plane is free again
  std::vector<SimTime> decoder_busy;   ///< [ChannelId], where decoders have a bandwidth
  std::vector<SimTime> filter_busy;    ///< [ChannelId], where filters have a bandwidth; counted when pages are due
  std::vector<SimTime> filter_free;    ///< [ChannelId], when the filter has passed its last page so far
  SimTime filter_waited;               ///< time that pages waited for the filter of their channel, summed over pages
  std::uint64_t buffer_overflows = 0;  ///< data-outs that started without a free page buffer
  std::uint64_t retries = 0;           ///< attempts to read after the first
  std::uint64_t retry_bytes = 0;       ///< over the channels, of the attempts that failed
  std::uint64_t register_reads = 0;    ///< reads that found their page in the register of their plane
  std::uint64_t suspends = 0;    ///< suspensions of programs and erases; a die's planes that work together count once
  std::uint64_t joined_ops = 0;  ///< operations that run together with one of another plane of the die
  UnfinishedArrayTime unfinished;

  explicit FlashStatistics(const FlashGeometry& geometry)
      : channels(geometry.channels),
        plane_busy(geometry.planes()),
        decoder_busy(geometry.channels),
        filter_busy(geometry.channels),
        filter_free(geometry.channels),
        unfinished(geometry.planes()) {}

  void count(OpClass op_class, PageOpKind kind, std::uint32_t channel_bytes) {
    const auto c = static_cast<std::size_t>(op_class);
    const auto k = static_cast<std::size_t>(kind);
    ++ops[c][k];
    ++counted_;
    bytes[c][k] += channel_bytes;
  }

  /// Adds the time for which an array works on an operation of this kind, without suspensions.
  void work(PageOpKind kind, SimTime time) { array_time[static_cast<std::size_t>(kind)] += time; }

  /// The same for a program or an erase, which ends at `end`.
  void work(PageOpKind kind, SimTime time, PlaneId plane, SimTime end) {
    work(kind, time);
    unfinished.add(plane, kind, time, end);
  }
  /// The arrays stop at `now`. Operations that had been granted stay counted.
  void give_up(SimTime now) {
    for (const PageOpKind kind : {PageOpKind::program, PageOpKind::erase})
      array_time[static_cast<std::size_t>(kind)] -= unfinished.after(now, kind);
    unfinished.clear();
  }
  /// Array time up to `now`.
  SimTime array_time_until(SimTime now, PageOpKind kind) const {
    return array_time[static_cast<std::size_t>(kind)] - unfinished.after(now, kind);
  }

  /// Busy time of filters up to `now`, summed over channels.
  SimTime filter_busy_until(SimTime now) const {
    SimTime sum;
    for (std::size_t c = 0; c < filter_busy.size(); ++c)
      sum += filter_busy[c] - std::max(filter_free[c] - now, SimTime{});
    return sum;
  }

  std::uint64_t total_ops() const { return counted_; }
  Bytes total_bytes() const { return {sum(bytes)}; }

  bool operator==(const FlashStatistics&) const = default;

 private:
  static std::uint64_t sum(const ByClassAndKind<std::uint64_t>& table) {
    std::uint64_t total = 0;
    for (const auto& row : table) {
      for (const auto value : row) total += value;
    }
    return total;
  }

  std::uint64_t counted_ = 0;  ///< operations counted, of all classes and kinds
};

/// Registers all of it with unit and meaning; `flash` must outlive the dump.
void register_statistics(Statistics& statistics, const FlashStatistics& flash);

}  // namespace csdsim::nfc
