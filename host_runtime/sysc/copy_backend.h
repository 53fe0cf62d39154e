// Copies between host and GPUs in simulated time, over links that drives and other GPUs use as well.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "host_runtime/core/machine/processor_backends.h"
#include "host_runtime/core/plan/executor.h"
#include "host_runtime/sysc/shared_memory.h"
#include "platform/shared_links.h"
#include "simulation/event_loop.h"

namespace csdsim::host {

/// Runs transfers over the links between host and GPUs. Where no shared link can hold a copy up, it takes the time of
/// LinkModel. Otherwise it goes in pieces at the rate of LinkModel, each of which passes the shared links of its route;
/// pieces of copies and of the drives' transfers take turns. Copies of one GPU and direction follow one another. With a
/// SharedMemory, copies are slowed down as it says.
class CopyBackend final : public OperationBackend {
 public:
  using Completed = std::function<void(OperationId, SimTime)>;

  /// `completed` is called at the simulated time at which a copy ends whose time start() did not know. `links` must
  /// outlive this. Throws UserError if the bandwidth is 0.
  CopyBackend(platform::SharedLinks& links, const LinkModel& model, Completed completed, OperationWork* work = nullptr);
  /// Null: host memory never holds copies up. It must outlive this.
  void set_memory(SharedMemory* memory) { memory_ = memory; }

  std::optional<SimTime> start(const Operation& op, SimTime now) override;

 private:
  struct Copy {
    OperationId id;
    std::uint64_t left = 0;  ///< bytes that have not passed
  };
  /// The copies of one GPU in one direction.
  struct Lane {
    Lane(const nvme::Route& r, CopyBackend& backend)
        : route(r), due(AlarmRank::transfer, [this, &backend] { backend.serve(*this); }) {}
    const nvme::Route& route;
    std::deque<Copy> copies;
    Alarm due;              ///< the piece at the front moves on
    SimTime offered;        ///< when the GPU's own link has carried the piece
    double demand = 0;      ///< bytes per second that it asks host memory for
    std::size_t stage = 0;  ///< shared links of the route that the piece has passed
  };

  void update_demands();
  void begin(Lane& lane, SimTime now);
  void serve(Lane& lane);
  SimTime piece_time(const Lane& lane) const;

  platform::SharedLinks& links_;
  LinkModel model_;
  LinkBackend alone_;
  Completed completed_;
  OperationWork* work_;
  SharedMemory* memory_ = nullptr;
  std::map<Resource, std::unique_ptr<Lane>> lanes_;
};

}  // namespace csdsim::host
