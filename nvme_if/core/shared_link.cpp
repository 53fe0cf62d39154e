#include "nvme_if/core/shared_link.h"

namespace csdsim::nvme {

void SharedLink::observe(const Period& piece) {
  if (period_.bytes > 0 && piece.start - period_.end > gap_) end_period();
  if (period_.bytes == 0) period_.start = piece.start;
  period_.end = piece.end;
  period_.bytes += piece.bytes;
}

void SharedLink::end_period() {
  if (observer_ && period_.bytes > 0) observer_(*this, period_);
  period_ = {};
}

}  // namespace csdsim::nvme
