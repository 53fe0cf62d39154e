// Timing of a PCI Express link: two independent directions, each a first-come first-served pipe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "base/work_observer.h"
#include "nvme_if/core/link_config.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::nvme {

/// Seen from the drive: to_host carries writes to memory, completions and read requests; to_drive the data of reads.
enum class LinkDirection : std::uint8_t { to_host = 0, to_drive = 1 };

/// When a transfer occupies the link, and when its last byte arrives at the other end.
struct LinkSlot {
  SimTime start;
  SimTime end;      ///< the direction is free again
  SimTime arrival;  ///< end + latency
};

struct LinkStats {
  std::uint64_t payload_bytes = 0;
  std::uint64_t packets = 0;
  SimTime busy{};
  SimTime queued{};  ///< that transfers waited for others in this direction
  SimTime waited{};  ///< that transfers which had crossed the link waited for shared links behind it
};

/// Next-free reservation for each direction. Requests for one direction must come in time order; back-to-back transfers
/// keep the fraction of a picosecond, so cutting a transfer into pieces (at packet boundaries) does not change when it
/// ends.
class PcieLink {
 public:
  /// UserError for a parameter out of range, and where neither generation and lanes nor a bandwidth is given.
  explicit PcieLink(const LinkConfig& config);

  /// `size` payload bytes, asked for at `now`, as ceil(size / max_payload) packets.
  LinkSlot reserve(LinkDirection direction, Bytes size, SimTime now);

  /// The drive reads `size` bytes of the host's side. Its read requests (ceil(size / max_read_request) packets without
  /// data) take their share of to_host, but pass queued writes at a packet boundary: the data is asked for on to_drive
  /// at `now` + the wire time of one request + latency. With outstanding_reads, each request waits for a tag first;
  /// the tags go round.
  LinkSlot reserve_read(Bytes size, SimTime now);

  /// Transfers that are not over at `now` are given up; they stay counted.
  void give_up(SimTime now) {
    for (Pipe& pipe : pipes_) {
      pipe.stats.busy -= std::clamp(pipe.free - now, SimTime{}, pipe.stats.busy);
      pipe.free = std::min(pipe.free, now);
      pipe.early = 0;
    }
    for (SimTime& free : tag_free_) free = std::min(free, now);
  }

  void add_wait(LinkDirection direction, SimTime time) { pipe(direction).stats.waited += time; }

  /// Wire time of `size` payload bytes on an idle link.
  SimTime transfer_duration(Bytes size) const;

  const LinkStats& stats(LinkDirection direction) const { return pipe(direction).stats; }
  /// Bytes on the link so far: payload and packet overheads.
  std::uint64_t wire_bytes(LinkDirection direction) const {
    const LinkStats& s = stats(direction);
    return wire_bytes(s.payload_bytes, s.packets);
  }
  /// Busy time up to `now`; LinkStats::busy counts transfers when they are reserved.
  SimTime busy_until(LinkDirection direction, SimTime now) const {
    const Pipe& p = pipe(direction);
    return p.stats.busy - std::clamp(p.free - now, SimTime{}, p.stats.busy);
  }
  const LinkConfig& config() const { return config_; }
  /// Its units are the directions; amounts are payload. It must outlive the link.
  void observe(WorkObserver* observer) { observer_ = observer; }

 private:
  /// whole + fraction / denominator_ picoseconds.
  struct Duration {
    std::int64_t whole = 0;
    std::uint64_t fraction = 0;
    SimTime rounded_up() const { return {whole + (fraction > 0 ? 1 : 0)}; }
  };
  struct Pipe {
    SimTime free;             ///< end of the current or last busy period, rounded up
    std::uint64_t early = 0;  ///< in picoseconds / denominator_: the exact end is so much before `free`
    LinkStats stats;
  };
  /// The load of one transfer on one direction of the link.
  struct Load {
    std::uint64_t payload = 0;
    std::uint64_t packets = 0;
    Duration time;
  };
  /// A transfer size seen before. Few different sizes occur, and computing the load of a new one takes slow divisions.
  struct alignas(64) Known {
    Bytes size{~std::uint64_t{0}};
    Load data;
    Load requests;  ///< read requests for a read of this size
  };
  Pipe& pipe(LinkDirection d) { return pipes_[static_cast<std::size_t>(d)]; }
  const Pipe& pipe(LinkDirection d) const { return pipes_[static_cast<std::size_t>(d)]; }
  LinkSlot occupy(LinkDirection direction, const Load& load, SimTime now);
  std::uint64_t wire_bytes(std::uint64_t payload, std::uint64_t packets) const {
    return payload + (config_.bandwidth ? 0 : packets * (config_.tlp_overhead.value + config_.dllp_overhead.value));
  }
  LinkSlot reserve_with_tags(Bytes size, SimTime now);
  Load load(std::uint64_t payload, std::uint64_t packets) const;
  [[gnu::noinline]] Known known(Bytes size) const;
  [[gnu::noinline]] void learn(Known& entry, Bytes size) { entry = known(size); }
  void tell(LinkDirection direction, const Load& load, SimTime start, SimTime end) const;
  [[gnu::always_inline]] const Known& look_up(Bytes size) {
    Known& entry = known_[(size.value >> 4 ^ size.value >> 8) % known_.size()];
    if (entry.size != size) [[unlikely]]
      learn(entry, size);
    return entry;
  }

  LinkConfig config_;
  /// Wire time of n bytes is n * numerator_ / denominator_ ps.
  std::uint64_t numerator_ = 0;
  std::uint64_t denominator_ = 1;
  std::array<Known, 16> known_{};
  SimTime read_request_time_;      ///< time of one read request on the link
  std::vector<SimTime> tag_free_;  ///< in the order of their use; used with outstanding_reads
  std::size_t next_tag_ = 0;
  std::array<Pipe, 2> pipes_;
  WorkObserver* observer_ = nullptr;
};

[[gnu::always_inline]] inline LinkSlot PcieLink::occupy(LinkDirection direction, const Load& load, SimTime now) {
  Pipe& p = pipe(direction);
  const SimTime start = std::max(now, p.free);
  const std::uint64_t early = now >= p.free ? 0 : p.early;
  const bool carry = load.time.fraction > early;
  const SimTime end{start.ps + load.time.whole + (carry ? 1 : 0)};
  p.free = end;
  p.early = early - load.time.fraction + (carry ? denominator_ : 0);
  p.stats.payload_bytes += load.payload;
  p.stats.packets += load.packets;
  p.stats.busy += end - start;
  p.stats.queued += start - now;
  if (observer_ != nullptr) [[unlikely]]
    tell(direction, load, start, end);
  return {start, end, end + config_.latency};
}

[[gnu::always_inline]] inline LinkSlot PcieLink::reserve(LinkDirection direction, Bytes size, SimTime now) {
  return occupy(direction, look_up(size).data, now);
}

[[gnu::always_inline]] inline LinkSlot PcieLink::reserve_read(Bytes size, SimTime now) {
  if (!tag_free_.empty()) [[unlikely]]
    return reserve_with_tags(size, now);
  const Known& entry = look_up(size);
  SimTime request_arrival = now + config_.latency;
  if (entry.requests.packets != 0) {
    occupy(LinkDirection::to_host, entry.requests, now);
    request_arrival += read_request_time_;
  }
  return occupy(LinkDirection::to_drive, entry.data, request_arrival);
}

/// Registers payload and busy time by direction; `link` must outlive the dump.
void register_statistics(Statistics& statistics, const PcieLink& link);

}  // namespace csdsim::nvme
