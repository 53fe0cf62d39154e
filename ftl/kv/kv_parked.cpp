// Page images in DRAM that wait for room in flash: what was in flight when power failed.
#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

/// Returns the address for the map entry. The caller has made sure that DRAM has room for a page.
PhysicalPageAddress KvFtl::park(PageOwner owner, std::span<const std::byte> image) {
  dram_.charge(DramUse::flush_pending, geometry_.page_size);
  parked_.emplace(next_parked_, ParkedPage{owner, {image.begin(), image.end()}});
  return {next_parked_++};
}

/// Programs as many parked pages as appends could. The pages of a segment are a job, those of a window another, because
/// windows are read back before they are programmed.
void KvFtl::place_parked(std::vector<FlushJob>& jobs) {
  for (auto it = parked_.begin(); it != parked_.end() && appendable_pages() > 0;) {
    const MapSegment& segment = *slots_[it->second.owner.slot];
    const KvPageId first = page_id(it->second.owner);
    FlushJob job;
    job.id = FlushJobId{next_job_++};
    PendingMove move;
    bool room = true;
    bool lost = false;
    move.sequences = segment.users;
    move.only_copy = true;
    const auto belongs = [&](const ParkedPage& parked) {
      if (parked.owner.slot != segment.slot) return false;
      const KvPageId page = page_id(parked.owner);
      return (page.kind == PageKind::embedding) == (first.kind == PageKind::embedding) && page.window == first.window;
    };
    while (it != parked_.end() && belongs(it->second) && appendable_pages() > 0) {
      const PageOwner owner = it->second.owner;
      const FoundEntry found = find_entry(owner, {it->first});
      if (found.entry == nullptr) {  // replaced; goes with its last reader
        ++it;
        continue;
      }
      const KvPageId page = page_id(owner);
      if (found.entry->awaits_read_back() && job.reads.empty()) {
        const HeadKey reader{segment.users.front(), segment.key.layer, segment.key.head};
        const KvWindow window = segment.layout.window(page.window);
        lost = read_back(segment.layout, tile(reader), window, window.end(), job);
      }
      const auto to = place_if_room(page, sequences_.at(segment.users.front()), owner, job);
      room = to.has_value();
      if (!room) break;  // programs failed and no spare block was left
      store_.write(*to, it->second.image, oob_tag(page, segment.layout, segment.number, found.partial_tokens));
      *found.entry = KvMapEntry(*to, found.entry->awaits_read_back());
      if (lost_.erase(it->first) > 0 || lost) lost_.insert(to->value);
      move.pages.push_back({owner, *to});
      it = parked_.erase(it);
    }
    if (!job.programs.empty()) {
      for (const SequenceId id : move.sequences) ++sequences_.at(id).pins;
      stats_.parked_pages_programmed += move.pages.size();
      moves_.emplace(job.id.value, std::move(move));
      jobs.push_back(std::move(job));
    }
    if (!room) return;
  }
}

}  // namespace csdsim::ftl
