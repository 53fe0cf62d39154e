#include "ftl/kv/kv_mover.h"

#include <utility>

namespace csdsim::ftl {

bool KvMover::can_empty(BlockId block) const {
  const std::uint64_t first = flash_.blocks.first_page(block).value;
  for (auto page = flash_.blocks.next_valid(block, 0); page; page = flash_.blocks.next_valid(block, *page + 1)) {
    const KvMapEntry* const entry = owners_.find(owners_.of({first + *page}), {first + *page}).entry;
    if (entry == nullptr || entry->in_dram()) return false;
  }
  return true;
}

bool KvMover::empty_block(BlockId block, std::uint64_t& moved, AppendResult& result) {
  const std::uint32_t valid = flash_.blocks.valid_pages(block);
  if (valid > flash_.blocks.available_pages() || !flash_.dram.fits(flash_.geometry.page_size * valid)) return false;
  const bool retired = flash_.blocks.state(block) != BlockState::full;
  if (!retired) {
    if (valid == 0) {
      result.erases.push_back(eraser_.begin(block));
      return true;
    }
    flash_.blocks.begin_collect(block);
  }
  FlushJob job;
  job.id = jobs_.new_id();
  job.kind = FlushKind::move;
  PendingMove move;
  const std::uint64_t first = flash_.blocks.first_page(block).value;
  for (auto page = flash_.blocks.next_valid(block, 0); page; page = flash_.blocks.next_valid(block, *page + 1)) {
    const PhysicalPageAddress from{first + *page};
    const PageOwner owner = owners_.of(from);
    const KvPageId id = owners_.id_of(owner);
    const MapSegment& segment = owners_.segment(owner);
    const auto to = placer_.place_moved(id, table_.at(segment.users.front()), owner, from, job);
    if (!to) break;  // a program failed and no spare block was left: the rest stays, it can be read
    const PlannedRead read_from = reader_.plan(from, OpClass::gc);
    job.reads.push_back(read_from.op);
    if (read_from.lost) losses_.mark(*to);
    const FoundEntry found = owners_.find(owner, from);
    if (flash_.store.carried()) {
      flash_.store.write(*to, reader_.bytes(id, segment, from, found.partial_tokens),
                         oob_tag(id, segment.layout, segment.number, found.partial_tokens));
    }
    *found.entry = KvMapEntry(*to, false);
    placer_.drop(from);
    move.pages.push_back({owner, *to});
    move.sequences.insert(move.sequences.end(), segment.users.begin(), segment.users.end());
  }
  flash_.dram.charge(DramUse::flush_pending, flash_.geometry.page_size * move.pages.size());
  moved += move.pages.size();
  ++flash_.stats.gc_blocks;
  const std::vector<SequenceId>& readers = jobs_.begin_move(job.id, std::move(move));
  if (!retired && flash_.blocks.valid_pages(block) == 0) eraser_.drain(block, readers);
  result.jobs.push_back(std::move(job));
  return true;
}

bool KvMover::same_job(PageOwner a, PageOwner b) const {
  if (a.slot != b.slot) return false;
  const KvPageId first = owners_.id_of(a), second = owners_.id_of(b);
  return (first.kind == PageKind::embedding) == (second.kind == PageKind::embedding) && first.window == second.window;
}

void KvMover::place_parked(std::vector<FlushJob>& jobs) {
  for (auto it = parked_.begin(); it != parked_.end() && flash_.appendable_pages() > 0;) {
    const MapSegment& segment = owners_.segment(it->second.owner);
    const PageOwner first = it->second.owner;
    FlushJob job;
    job.id = jobs_.new_id();
    PendingMove move;
    bool room = true;
    bool lost = false;
    move.sequences = segment.users;
    move.only_copy = true;
    while (it != parked_.end() && same_job(first, it->second.owner) && flash_.appendable_pages() > 0) {
      const PageOwner owner = it->second.owner;
      const FoundEntry found = owners_.find(owner, {it->first});
      if (found.entry == nullptr) {  // replaced; goes with its last reader
        ++it;
        continue;
      }
      const KvPageId page = owners_.id_of(owner);
      if (found.entry->awaits_read_back() && job.reads.empty()) {
        const HeadKey reader{segment.users.front(), segment.key.layer, segment.key.head};
        const KvWindow window = segment.layout.window(page.window);
        lost = reader_.read_back(segment.layout, table_.tile(reader), window, window.end(), job);
      }
      const auto to = placer_.place_if_room(page, table_.at(segment.users.front()), owner, job);
      room = to.has_value();
      if (!room) break;  // programs failed and no spare block was left
      flash_.store.write(*to, it->second.image, oob_tag(page, segment.layout, segment.number, found.partial_tokens));
      *found.entry = KvMapEntry(*to, found.entry->awaits_read_back());
      if (losses_.forget(PhysicalPageAddress{it->first}) || lost) losses_.mark(*to);
      move.pages.push_back({owner, *to});
      it = parked_.remove(it);
    }
    if (!job.programs.empty()) {
      flash_.stats.parked_pages_programmed += move.pages.size();
      jobs_.begin_move(job.id, std::move(move));
      jobs.push_back(std::move(job));
    }
    if (!room) return;
  }
}

}  // namespace csdsim::ftl
