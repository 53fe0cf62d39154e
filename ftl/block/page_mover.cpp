#include "ftl/block/page_mover.h"

#include <algorithm>
#include <array>
#include <utility>

namespace csdsim::ftl {

Stream PageMover::stream_for(BlockId victim) const {
  const Stream stream = flash_.config.isolation == Isolation::persistently
                            ? gc_stream(handle_of(flash_.blocks.stream_of(victim)))
                            : Stream::gc;
  if (!entries_.are_cached()) return stream;
  const auto page = flash_.blocks.next_valid(victim, 0);
  if (!page) return stream;
  const LogicalPage resident = map_.resident({flash_.blocks.first_page(victim).value + *page});
  return resident.value < flash_.exported ? stream : Stream::map;
}

bool PageMover::move_pages(BlockId from, Stream stream, std::uint32_t limit, std::vector<Phase>* phases,
                           std::uint64_t& moved) {
  constexpr std::uint32_t kAhead = 64;  // map entries fetched before they are needed
  struct Page {
    PhysicalPageAddress ppa;
    LogicalPage logical;
  };
  std::array<Page, kAhead> batch;
  BackingStore& store = flash_.store;
  const PlaneId plane = flash_.blocks.plane_of(from);
  const std::uint64_t first = flash_.blocks.first_page(from).value;
  Phase reads;
  Phase programs;
  bool room = true;
  std::uint32_t next = 0;
  while (room && limit > 0) {
    std::uint32_t size = 0;
    for (auto page = flash_.blocks.next_valid(from, next); page && size < std::min(kAhead, limit);
         page = flash_.blocks.next_valid(from, next)) {
      const PhysicalPageAddress ppa{first + *page};
      batch[size] = {ppa, map_.resident(ppa)};
      map_.prefetch(batch[size++].logical);
      next = *page + 1;
    }
    if (size == 0) break;
    limit -= size;
    for (std::uint32_t i = 0; i < size && room; ++i) {
      const auto [ppa, logical] = batch[i];
      const auto to = appender_.program(plane, stream, OpClass::gc, phases != nullptr ? &programs : nullptr);
      room = to.has_value();
      if (!room) break;
      PageOp read;
      const bool corrected = reader_.plan(logical, ppa, OpClass::gc, read);
      if (!corrected) reader_.lose(logical);
      if (phases != nullptr) reads.push_back(read);
      if (store.carried())
        store.copy(ppa, *to, store.read_verified(ppa, host_tag(logical), flash_.config.check), host_tag(logical),
                   !corrected);
      map_.rebind(logical, *to);
      entries_.moved(logical);
      flash_.blocks.invalidate(ppa);
      ++moved;
    }
  }
  if (phases != nullptr) {
    phases->push_back(std::move(reads));
    phases->push_back(std::move(programs));
  }
  return room;
}

void PageMover::erase(BlockId block, std::vector<Phase>* phases) {
  lines_.fill_before_erase(block, phases);
  trims_.save_all();
  flash_.blocks.begin_erase(block);
  if (phases != nullptr)
    phases->push_back({flash_.op(flash_.blocks.first_page(block), PageOpKind::erase, OpClass::gc)});
  flash_.store.erase(block);
  if (flash_.faults != nullptr && flash_.faults->erase_fails(block, flash_.blocks.erase_count(block))) {
    ++flash_.stats.erase_failures;
    flash_.blocks.fail_erase(block);
  } else {
    // The erase precedes every later program of this block in the plan, so the block may be reused in the state at
    // once.
    flash_.blocks.finish_erase(block);
  }
}

}  // namespace csdsim::ftl
