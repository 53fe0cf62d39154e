// Observers of the parts of a flash.
#pragma once

#include "base/work_observer.h"

namespace csdsim::nfc {

/// Optional: no events are reported to an observer that is null.
struct FlashObservers {
  WorkObserver* channels = nullptr;  ///< by ChannelId: commands and data on the bus, in bytes
  WorkObserver* planes = nullptr;    ///< by PlaneId: sensing, programming, erasing
  WorkObserver* filters = nullptr;   ///< by ChannelId: pages of attention while they pass the filter, in bytes
  WorkObserver* decoders = nullptr;  ///< by ChannelId, where decoders have a bandwidth
  WorkObserver* buffers = nullptr;   ///< by ChannelId: page buffers in use, where they are limited
};

}  // namespace csdsim::nfc
