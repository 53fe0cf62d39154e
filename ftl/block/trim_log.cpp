#include "ftl/block/trim_log.h"

namespace csdsim::ftl {

void TrimLog::save(std::uint64_t trims) {
  for (; saved_trims_ < trims; ++saved_trims_) {
    if (unsaved_.empty()) continue;  // timing mode
    const auto [page, stamp] = unsaved_.front();
    saved_[page] = stamp;
    unsaved_.pop_front();
  }
}

TrimLog::Stamps TrimLog::stamps(bool with_unsaved) const {
  Stamps stamps = saved_;
  if (with_unsaved)
    for (const auto& [page, stamp] : unsaved_) stamps[page] = stamp;
  return stamps;
}

}  // namespace csdsim::ftl
