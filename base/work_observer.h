// Interface through which the units of a model report their work to a trace.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/units.h"

namespace csdsim {

/// Told what the units of a part (channels, cores, directions of a link) do. A part without an observer only compares
/// a pointer.
class WorkObserver {
 public:
  /// Unit `unit` does `what` (a name of static storage) from `start` to `end`, which may be ahead of simulated time and
  /// out of order. `amount`: bytes, or what the part documents; 0 for none.
  virtual void work(std::uint32_t unit, std::string_view what, SimTime start, SimTime end, std::uint64_t amount) = 0;
  /// A level of the unit, such as the commands in a queue, is `value` from `at` on.
  virtual void level(std::uint32_t unit, std::uint64_t value, SimTime at) = 0;

 protected:
  ~WorkObserver() = default;
};

}  // namespace csdsim
