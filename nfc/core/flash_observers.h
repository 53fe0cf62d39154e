// Observers of the parts of a flash.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "base/work_observer.h"
#include "contracts/page_op.h"

namespace csdsim::nfc {

/// Optional: no events are reported to an observer that is null.
struct FlashObservers {
  WorkObserver* channels = nullptr;  ///< by ChannelId: commands and data on the bus, in bytes
  WorkObserver* planes = nullptr;    ///< by PlaneId: sensing, programming, erasing
  WorkObserver* filters = nullptr;   ///< by ChannelId: pages of attention while they pass the filter, in bytes
  WorkObserver* decoders = nullptr;  ///< by ChannelId, where decoders have a bandwidth
  WorkObserver* buffers = nullptr;   ///< by ChannelId: page buffers in use, where they are limited
};

/// Told of the programs and erases of the planes: what a loss of power interrupts follows from it. Those of a plane
/// that have the same class and kind begin and end in the order of their submission.
class ChangeObserver {
 public:
  /// The array begins to work on it, or has ended, at `at`, which may be ahead of simulated time.
  virtual void begins(std::uint32_t plane, OpClass op_class, PageOpKind kind, SimTime at) = 0;
  virtual void ends(std::uint32_t plane, OpClass op_class, PageOpKind kind, SimTime at) = 0;

 protected:
  ~ChangeObserver() = default;
};

}  // namespace csdsim::nfc
