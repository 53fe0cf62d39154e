// The parts into which the firmware cuts a write of the host: each is planned by itself, and pays for collection.
#pragma once

#include <algorithm>

#include "base/fixed_divisor.h"
#include "csd_model/firmware/plan_runner.h"

namespace csdsim::csd_model {

/// Parts are pages, or word lines that are programmed with what a command has of them. A logical block, which is
/// written as a whole, is not cut.
class WriteParts {
 public:
  /// `unit` is a mapping unit.
  WriteParts(const PagePacking& packing, Bytes unit, Bytes block_size)
      : step_(std::max(unit * (packing.pads ? packing.line() : packing.units), block_size)),
        // Parts with word lines of their own count from the beginning of the command, in whole units.
        from_(packing.pads && packing.line() > 1 ? unit : step_),
        by_from_(from_.value) {}

  /// Where a part ends that begins at byte `at` of the namespace, if its command does not end before.
  Bytes end(Bytes at) const { return from_ * by_from_.quotient(at.value) + step_; }

 private:
  Bytes step_, from_;
  FixedDivisor by_from_;
};

}  // namespace csdsim::csd_model
