// Interfaces behind an executor: the backends that give the times of operations, and the code that does their work.
#pragma once

#include <optional>
#include <span>

#include "base/units.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// Does the work of operations on real data, in runs that carry data.
class OperationWork {
 public:
  virtual ~OperationWork() = default;
  /// Computes an operation of a processor, or copies the bytes of a transfer. Called when the operation starts.
  virtual void perform(const Operation& op) = 0;
  /// Called when the operation has ended: the tensors that it drops can be freed.
  virtual void ended(const Operation&) {}
};

/// Runs the operations of a resource and determines their times. In carried runs a processor computes inside start(); a
/// drive moves the bytes itself.
class OperationBackend {
 public:
  virtual ~OperationBackend() = default;
  /// Receives the tensors that exist before the plan starts: weights, and K and V of steps that a sampled run skips.
  virtual void place(std::span<const PlacedTensor>) {}
  /// Starts `op` at `now`. Returns its duration if it is known (from a model or a measurement), or nothing if
  /// Executor::complete() will report the end. Must not call the executor. `op` stays valid until end().
  virtual std::optional<SimTime> start(const Operation& op, SimTime now) = 0;
  /// Called when the operation has ended.
  virtual void end(const Operation&) {}
  /// Bytes that a running operation moves (moved_bytes()), also where they were not known when it was planned.
  virtual Bytes moved(const Operation& op) const { return moved_bytes(op.work); }
};

}  // namespace csdsim::host
