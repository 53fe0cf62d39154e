#include "ftl/block/block_collector.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace csdsim::ftl {

bool BlockCollector::choose_victim(PlaneId plane) {
  if (victims_.has(plane)) return true;
  const std::optional<BlockId> victim = flash_.blocks.victim(plane, Namespace::block);
  if (!victim || !flash_.fits(*victim, mover_.stream_for(*victim))) return false;
  victims_.choose(*victim);
  flash_.blocks.begin_collect(*victim);
  return true;
}

bool BlockCollector::in_steps(const PlanBuilder& plan) const {
  return flash_.config.gc_pace == GcPace::steps && plan.paced();
}

/// A write that opens a block waits for whole victims while there are no more free blocks than this. With steps it
/// waits only where a single block is free: that one belongs to collection.
std::uint32_t BlockCollector::urgent_free_blocks(const PlanBuilder& plan) const {
  return in_steps(plan) ? 1 : flash_.config.gc_free_blocks;
}

bool BlockCollector::finish_victim(PlaneId plane, std::vector<Phase>* phases) {
  std::optional<BlockId>& victim = victims_.of(plane).victim;
  if (!mover_.move_all(*victim, mover_.stream_for(*victim), phases, flash_.stats.gc_pages_moved)) return false;
  mover_.erase(*std::exchange(victim, std::nullopt), phases);
  ++flash_.stats.gc_erases;
  return true;
}

void BlockCollector::collect(PlaneId plane, PlanBuilder& plan) {
  std::vector<Phase> phases;
  std::vector<Phase>* record = plan.records() ? &phases : nullptr;
  bool erased = false;
  const std::uint32_t urgent = urgent_free_blocks(plan);
  while (flash_.free_blocks(plane) <= urgent && choose_victim(plane)) {
    if (!finish_victim(plane, record)) break;
    erased = true;
  }
  if (erased && leveller_.levels()) leveller_.level(plane, record);
  add(plane, std::move(phases), plan);
}

/// With volatile_lines an erase follows all programs of the plan so far: one of them may be of a newer version of what
/// the block held.
void BlockCollector::add(PlaneId plane, std::vector<Phase> phases, PlanBuilder& plan) const {
  if (phases.empty()) return;
  const auto erases = [](const Phase& phase) {
    return std::ranges::any_of(phase, [](const PageOp& op) { return op.kind == PageOpKind::erase; });
  };
  if (flash_.config.volatile_lines && std::ranges::any_of(phases, erases)) plan.barrier();
  plan.collect(plane, std::move(phases));
}

/// Moves up to `limit` pages of the plane's victim, and erases it once it is empty.
void BlockCollector::collect_pages(PlaneId plane, std::uint32_t limit, std::vector<Phase>* phases) {
  const BlockId victim = *victims_.of(plane).victim;
  if (limit > 0) mover_.move_pages(victim, mover_.stream_for(victim), limit, phases, flash_.stats.gc_pages_moved);
  if (flash_.blocks.valid_pages(victim) == 0) {
    victims_.of(plane).victim.reset();
    mover_.erase(victim, phases);
    ++flash_.stats.gc_erases;
    if (leveller_.levels()) leveller_.level(plane, phases);
  }
  if (phases != nullptr) std::erase_if(*phases, [](const Phase& phase) { return phase.empty(); });
}

void BlockCollector::owe(PlaneId plane, const PlanBuilder& plan) {
  if (in_steps(plan) && flash_.free_blocks(plane) <= flash_.config.gc_free_blocks) owed_.push_back(plane);
}

/// Until a victim is erased, its moved pages and the writes that share the work fill one block. So collection begins
/// when one and a quarter blocks of pages are left beyond gc_free_blocks, and gc_free_blocks are still free when a
/// write opens a block. It waits longer for a victim of which a page was overwritten just now: sequential writes will
/// empty it without a move.
bool BlockCollector::time_to_collect(PlaneId plane) {
  constexpr std::uint64_t kQuietWrites = 16;  // to each plane
  const std::uint32_t available = flash_.free_blocks(plane), pages = flash_.geometry.pages_per_block;
  if (victims_.has(plane) || available != flash_.config.gc_free_blocks)
    return available <= flash_.config.gc_free_blocks;
  return flash_.open_pages(plane) <= pages + pages / 4 &&
         flash_.blocks.settled_gain(plane, Namespace::block, kQuietWrites * flash_.geometry.planes()) > 0;
}

/// Fewer pages are free than there would be if the victim had been begun in time. Writes then move twice their share:
/// with one share, each victim makes room only for the writes that moved its pages, and the plane would stay behind.
bool BlockCollector::is_late(PlaneId plane) const {
  const std::uint64_t pages = flash_.geometry.pages_per_block;
  return flash_.free_blocks(plane) * pages + flash_.open_pages(plane) < flash_.config.gc_free_blocks * pages;
}

void BlockCollector::pay(PlanBuilder& steps) {
  for (const PlaneId plane : std::exchange(owed_, {})) {
    if (!time_to_collect(plane) || !choose_victim(plane)) continue;
    Collection& collection = victims_.of(plane);
    collection.debt += std::uint64_t{collection.moves} * (is_late(plane) ? 2 : 1);
    const std::uint64_t pages = collection.debt / collection.gain;
    collection.debt %= collection.gain;
    std::vector<Phase> phases;
    collect_pages(plane, static_cast<std::uint32_t>(pages), steps.records() ? &phases : nullptr);
    add(plane, std::move(phases), steps);
  }
}

bool BlockCollector::wants_background_step(PlaneId plane) const {
  return flash_.free_blocks(plane) <= flash_.config.background_free_blocks &&
         flash_.config.background_free_blocks > 0 && !flash_.blocks.read_only();
}

std::vector<Phase> BlockCollector::background_step(PlaneId plane) {
  std::vector<Phase> phases;
  if (wants_background_step(plane) && choose_victim(plane)) collect_pages(plane, flash_.config.gc_step_pages, &phases);
  return phases;
}

}  // namespace csdsim::ftl
