// One direction of a link that several senders share: the GPU's link, the root complex, the upstream link of a switch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"

namespace csdsim::nvme {

/// Transfers pass a shared link in pieces of at most this many bytes: a small transfer waits for one piece of every
/// other sender, not for their whole transfers. A multiple of every packet size, so that cutting a transfer changes
/// nothing on the sender's own link.
inline constexpr Bytes kSharedPiece = Bytes::kib(4);

struct SharedLinkStats {
  std::uint64_t bytes = 0;  ///< payload
  SimTime busy{};
  SimTime waited{};  ///< that pieces waited for others
};

/// Serves pieces in the order in which they arrive. A sender offers its next piece when the one before has passed, so
/// that busy senders share the link evenly. Calls come in the order of simulated time.
class SharedLink {
 public:
  /// A stretch of time in which the link was (nearly) always busy.
  struct Period {
    SimTime start;
    SimTime end;
    std::uint64_t bytes = 0;
  };
  using Observer = std::function<void(const SharedLink&, const Period&)>;

  explicit SharedLink(std::string name) : name_(std::move(name)) {}

  /// A piece that the link carries at `rate`, whose last byte arrives at `now`. Returns when its last byte has passed:
  /// `now` on an idle link, which forwards bytes as they come.
  SimTime pass(Bytes size, Bandwidth rate, SimTime now) {
    const SimTime duration = transfer_time(size, rate);
    const SimTime end = std::max(now, free_ + duration);
    stats_.bytes += size.value;
    stats_.busy += duration;
    stats_.waited += end - now;
    if (observer_) observe({end - duration, end, size.value});
    free_ = end;
    return end;
  }

  const std::string& name() const { return name_; }
  const SharedLinkStats& stats() const { return stats_; }
  /// Busy time up to `now`; SharedLinkStats::busy counts pieces when they arrive.
  SimTime busy_until(SimTime now) const { return stats_.busy - std::clamp(free_ - now, SimTime{}, stats_.busy); }

  /// Calls `observer` for every busy period; gaps of up to `gap` are taken as busy. Call end_period() at the end.
  void set_observer(Observer observer, SimTime gap) {
    observer_ = std::move(observer);
    gap_ = gap;
  }
  void end_period();

 private:
  void observe(const Period& piece);

  std::string name_;
  SimTime free_;  ///< when everything that has arrived has passed
  SharedLinkStats stats_;
  Observer observer_;
  SimTime gap_;
  Period period_;
};

/// A shared link on the way of a transfer, and the rate at which it carries this kind of transfer.
struct Hop {
  SharedLink* link = nullptr;
  Bandwidth rate = {};
};

/// The shared links that a transfer passes, in order.
using Route = std::vector<Hop>;

}  // namespace csdsim::nvme
