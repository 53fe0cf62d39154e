#include "ftl/block/page_mover.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/error.h"

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
                           std::uint64_t& moved, std::uint32_t& next) {
  if (phases == nullptr && flash_.only_places()) return move_runs(from, stream, limit, moved, next);
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
  const std::uint64_t moved_before = moved;
  LogicalPage first_moved;
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
      if (!room) {
        next = static_cast<std::uint32_t>(ppa.value - first);
        break;
      }
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
      count_move(logical);
      if (moved_ && phases != nullptr) moved_(*to, ppa);
      if (moved++ == moved_before) first_moved = logical;
    }
  }
  if (observer_ != nullptr && moved > moved_before)
    tell_moved(from, static_cast<std::uint32_t>(moved - moved_before), first_moved);
  if (phases != nullptr) {
    phases->push_back(std::move(reads));
    phases->push_back(std::move(programs));
  }
  return room;
}

/// move_pages() without operations, for pages that have nothing but a place.
bool PageMover::move_runs(BlockId from, Stream stream, std::uint32_t limit, std::uint64_t& moved, std::uint32_t& next) {
  const PlaneId plane = flash_.blocks.plane_of(from);
  const std::uint64_t first = flash_.blocks.first_page(from).value;
  while (limit > 0) {
    const auto page = flash_.blocks.next_valid(from, next);
    next = page.value_or(flash_.geometry.pages_per_block);
    if (!page) break;
    BlockManager::PageRun to = flash_.blocks.allocate_run(plane, stream, flash_.blocks.valid_run(from, *page, limit));
    if (to.count == 0) {
      const auto opened = flash_.blocks.allocate(plane, stream);
      if (!opened) return false;
      to = {*opened, 1};
    }
    for (std::uint32_t i = 0; i < to.count; ++i) {
      const LogicalPage logical = map_.resident({first + *page + i});
      map_.rebind(logical, {to.first.value + i});
      count_move(logical);
    }
    flash_.blocks.invalidate_run({first + *page}, to.count);
    next += to.count;
    limit -= to.count;
    moved += to.count;
  }
  return true;
}

void PageMover::tell_moved(BlockId from, std::uint32_t pages, LogicalPage first) {
  const Stream stream = flash_.blocks.stream_of(from);
  const bool kept_apart = flash_.config.isolation == Isolation::persistently && stream == gc_stream(handle_of(stream));
  if (first.value >= flash_.exported || !(is_host_stream(stream) || kept_apart)) return;
  observer_->moved(handle_of(stream), flash_.blocks.plane_of(from), pages, first);
}

void PageMover::close(BlockId block, std::vector<Phase>* phases) {
  Phase programs;
  lines_.fill(flash_.blocks.plane_of(block), flash_.blocks.stream_of(block), OpClass::gc,
              phases != nullptr ? &programs : nullptr);
  if (!programs.empty()) phases->push_back(std::move(programs));
  if (flash_.blocks.state(block) == BlockState::open) flash_.blocks.close(block);
}

void PageMover::count_moves(std::uint64_t pages_of_part) {
  if (!std::has_single_bit(pages_of_part)) throw InternalError("parts are counted in powers of two");
  part_bits_ = std::countr_zero(pages_of_part);
  moves_.assign((flash_.exported + pages_of_part - 1) / pages_of_part, 0);
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
