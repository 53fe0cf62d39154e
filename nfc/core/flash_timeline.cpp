#include "nfc/core/flash_timeline.h"

namespace csdsim::nfc {

FlashTimeline::FlashTimeline(const FlashGeometry& geometry, const FlashTiming& timing, Rules rules)
    : timeline_(rules == Rules::automatic && PlainTimeline::covers(timing)
                    ? Timeline(std::in_place_type<PlainTimeline>, geometry, timing)
                    : Timeline(std::in_place_type<GeneralTimeline>, geometry, timing)),
      base_(std::visit([](TimelineBase& timeline) { return &timeline; }, timeline_)) {}

}  // namespace csdsim::nfc
