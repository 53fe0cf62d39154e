#include "nfc/core/flash_timeline.h"

namespace csdsim::nfc {

FlashTimeline::FlashTimeline(const FlashGeometry& geometry, const FlashTiming& timing, Rules rules)
    : timeline_(rules == Rules::automatic && PlainTimeline::covers(timing)
                    ? Timeline(std::in_place_type<PlainTimeline>, geometry, timing)
                    : Timeline(std::in_place_type<GeneralTimeline>, geometry, timing)),
      base_(std::visit([](TimelineBase& timeline) { return &timeline; }, timeline_)) {}

void FlashTimeline::forget(SimTime now) {
  const FlashGeometry geometry = base_->geometry();
  const FlashTiming timing = base_->timing();
  const TimelineBase::History history = base_->history();
  if (std::holds_alternative<PlainTimeline>(timeline_))
    base_ = &timeline_.emplace<PlainTimeline>(geometry, timing);
  else
    base_ = &timeline_.emplace<GeneralTimeline>(geometry, timing);
  base_->go_on(history, now);
}

}  // namespace csdsim::nfc
