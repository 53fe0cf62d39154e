// What stands behind an executor: who takes the time of operations, and who does their work.
#pragma once

#include <optional>
#include <span>

#include "base/units.h"
#include "host_runtime/core/planner/operation.h"

namespace csdsim::host {

/// The data behind operations, in runs that carry data.
class OperationWork {
 public:
  virtual ~OperationWork() = default;
  /// Does the work of an operation of a processor, or moves the bytes of a transfer; called when it starts.
  virtual void perform(const Operation& op) = 0;
  /// The operation has ended: what it drops is needed no more.
  virtual void ended(const Operation&) {}
};

/// Takes the time of the operations of a resource. In carried runs the work of a processor happens inside start(),
/// synchronously; a drive moves the bytes itself.
class OperationBackend {
 public:
  virtual ~OperationBackend() = default;
  /// What lies where before the plan starts: weights, K and V of steps that a sampled run skips.
  virtual void place(std::span<const PlacedTensor>) {}
  /// Starts `op` at `now`. Returns how long it takes where that is known (a model, a measured duration), or nothing
  /// where Executor::complete() will tell. Must not call the executor. `op` stays valid until end().
  virtual std::optional<SimTime> start(const Operation& op, SimTime now) = 0;
  /// The operation has ended.
  virtual void end(const Operation&) {}
};

}  // namespace csdsim::host
