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

/// Makes the open block of a handle the victim, the one with the fewest valid pages, where no full block makes room.
bool BlockCollector::choose_open_block(PlaneId plane, std::vector<Phase>* phases) {
  if (flash_.config.handles == 1) return false;
  BlockManager& blocks = flash_.blocks;
  std::optional<BlockId> least;
  for (std::uint32_t handle = 0; handle < flash_.config.handles; ++handle) {
    const std::optional<BlockId> open = blocks.open_block(plane, host_stream(PlacementHandle{handle}));
    if (open && (!least || blocks.valid_pages(*open) < blocks.valid_pages(*least))) least = open;
  }
  if (!least || !flash_.fits(*least, mover_.stream_for(*least))) return false;
  mover_.close(*least, phases);
  ++flash_.stats.closed_blocks;
  if (observer_ != nullptr) observer_->closed(handle_of(blocks.stream_of(*least)), plane);
  victims_.choose(*least);
  blocks.begin_collect(*least);
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
  if (!mover_.move_pages(*victim, mover_.stream_for(*victim), flash_.geometry.pages_per_block, phases,
                         flash_.stats.gc_pages_moved, victims_.of(plane).next))
    return false;
  mover_.erase(*std::exchange(victim, std::nullopt), phases);
  ++flash_.stats.gc_erases;
  return true;
}

void BlockCollector::collect(PlaneId plane, PlanBuilder& plan) {
  std::vector<Phase> phases;
  std::vector<Phase>* record = plan.records() ? &phases : nullptr;
  bool erased = false;
  const Done before = done();
  const std::uint32_t urgent = urgent_free_blocks(plan);
  while (flash_.free_blocks(plane) <= urgent && (choose_victim(plane) || choose_open_block(plane, record))) {
    if (!finish_victim(plane, record)) break;
    erased = true;
  }
  if (erased && leveller_.levels()) leveller_.level(plane, record);
  load(plane, before, plan);
  add(plane, std::move(phases), plan);
}

/// Without operations, adds what was moved and erased in the plane to its load.
void BlockCollector::load(PlaneId plane, Done before, const PlanBuilder& plan) const {
  if (plan.records() || plan.load() == nullptr) return;
  const auto moved = static_cast<std::int64_t>(flash_.stats.gc_pages_moved - before.moved);
  const auto lines = moved / flash_.config.units_per_program;
  const auto erased = static_cast<std::int64_t>(flash_.stats.gc_erases - before.erased);
  const ArrayTimes& times = plan.load()->times();
  plan.load()->add(plane, times.read * moved + times.program * lines + times.erase * erased);
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
  if (limit > 0)
    mover_.move_pages(victim, mover_.stream_for(victim), limit, phases, flash_.stats.gc_pages_moved,
                      victims_.of(plane).next);
  if (flash_.blocks.valid_pages(victim) == 0) {
    victims_.of(plane).victim.reset();
    mover_.erase(victim, phases);
    ++flash_.stats.gc_erases;
    if (leveller_.levels()) leveller_.level(plane, phases);
  }
  if (phases != nullptr) std::erase_if(*phases, [](const Phase& phase) { return phase.empty(); });
}

void BlockCollector::owe(PlaneId plane, std::uint32_t pages) {
  if (!wants_share(plane)) return;
  if (!owed_.empty() && owed_.back().plane == plane)
    owed_.back().pages += pages;
  else
    owed_.push_back({plane, pages});
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
  for (Owed owed : std::exchange(owed_, {})) {
    const Done before = done();
    while (owed.pages > 0) {
      if (!steps.records()) owed.pages -= pay_quietly(owed.plane, owed.pages);
      if (owed.pages == 0) break;
      --owed.pages;
      // Where nothing is collected now, nothing changes for the next page.
      if (!pay_page(owed.plane, steps)) break;
    }
    load(owed.plane, before, steps);
  }
}

/// The share of one page. False: there is nothing to collect.
bool BlockCollector::pay_page(PlaneId plane, PlanBuilder& steps) {
  if (!time_to_collect(plane) || !choose_victim(plane)) return false;
  Collection& collection = victims_.of(plane);
  collection.debt += std::uint64_t{collection.moves} * (is_late(plane) ? 2 : 1);
  const std::uint64_t pages = collection.debt / collection.gain;
  collection.debt %= collection.gain;
  std::vector<Phase> phases;
  collect_pages(plane, static_cast<std::uint32_t>(pages), steps.records() ? &phases : nullptr);
  add(plane, std::move(phases), steps);
  return true;
}

/// Pays for up to `pages` pages at once, as pay_page() does one by one, as long as that erases no block, opens none and
/// does not make the plane late. Returns their number.
std::uint32_t BlockCollector::pay_quietly(PlaneId plane, std::uint32_t pages) {
  Collection& collection = victims_.of(plane);
  if (!flash_.only_places()) return 0;
  if (!collection.victim || collection.moves == 0 || !time_to_collect(plane)) return 0;
  const Stream stream = mover_.stream_for(*collection.victim);
  std::uint64_t most = flash_.blocks.valid_pages(*collection.victim);
  if (most-- <= 1) return 0;
  // One page of the open block is left: lateness changes when it is full.
  const std::uint64_t open = flash_.blocks.open_pages(plane, stream);
  most = std::min(most, open - std::min<std::uint64_t>(open, 1));
  const std::uint64_t block = flash_.geometry.pages_per_block;
  const bool late = is_late(plane);
  if (!late)
    most = std::min(
        most, flash_.free_blocks(plane) * block + flash_.open_pages(plane) - flash_.config.gc_free_blocks * block);
  const std::uint64_t share = std::uint64_t{collection.moves} * (late ? 2 : 1);
  // The most pages n with (debt + n * share) / gain <= most.
  const std::uint64_t room = (most + 1) * collection.gain - 1;
  if (room < collection.debt) return 0;
  const auto paid = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages, (room - collection.debt) / share));
  collection.debt += paid * share;
  const auto moves = static_cast<std::uint32_t>(collection.debt / collection.gain);
  collection.debt %= collection.gain;
  if (moves > 0)
    mover_.move_pages(*collection.victim, stream, moves, nullptr, flash_.stats.gc_pages_moved, collection.next);
  return paid;
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
