// Host memory that copies and the host's cores use at the same time.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "host_runtime/core/plan/operation_backend.h"
#include "simulation/event_loop.h"

namespace csdsim::host {

/// Divides the bandwidth of host memory. Whoever uses it has a demand: the bytes per second that it reads or writes
/// while nothing holds it up. While all demands together exceed the bandwidth, all take as many times longer.
class SharedMemory {
 public:
  using Completed = std::function<void(OperationId, SimTime)>;

  /// `completed` is called at the simulated time at which an operation ends. Throws UserError if the bandwidth is 0.
  SharedMemory(Bandwidth bandwidth, Completed completed);

  /// An operation that takes `alone` where nothing holds it up, and moves `bytes` evenly meanwhile. Returns its time if
  /// it moves nothing; otherwise `completed` tells its end.
  std::optional<SimTime> run(OperationId id, SimTime alone, Bytes bytes);
  /// The demand of a link that counts its own time by slowdown(), in bytes per second; 0: it is idle.
  void set_demand(Resource link, double bytes_per_second);
  /// How many times longer everything takes now; at least 1.
  double slowdown() const { return slowdown_; }

 private:
  struct Use {
    OperationId id;
    SimTime left;  ///< where nothing holds it up
    double demand = 0;
  };
  void advance();
  void share_out();
  void end_uses();

  double bandwidth_;
  Completed completed_;
  std::vector<Use> uses_;  ///< in the order of their start
  std::map<Resource, double> links_;
  double slowdown_ = 1;
  SimTime advanced_;  ///< time up to which `left` counts
  Alarm due_{AlarmRank::transfer, [this] { end_uses(); }};
};

/// Runs operations of the host's cores with a memory that they share with copies.
class SharedMemoryBackend final : public OperationBackend {
 public:
  /// `alone` knows the times without others. Both must outlive this.
  SharedMemoryBackend(OperationBackend& alone, SharedMemory& memory) : alone_(alone), memory_(memory) {}
  std::optional<SimTime> start(const Operation& op, SimTime now) override;

 private:
  OperationBackend& alone_;
  SharedMemory& memory_;
};

}  // namespace csdsim::host
