// Moving pages of the block namespace: garbage collection, wear levelling, retired blocks.
#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "ftl/block/block_ftl.h"
#include "ftl/block/plan_builder.h"

namespace csdsim::ftl {
namespace {

std::uint32_t open_pages(const BlockManager& blocks, PlaneId plane) {
  return blocks.open_pages(plane, Stream::host) + blocks.open_pages(plane, Stream::gc);
}

/// A victim that is begun in time leaves more than this free before it is erased. Writes that are late pay twice: each
/// victim makes room only for the writes that pay for it, so that what is missing would be missing for ever.
bool is_late(const BlockManager& blocks, PlaneId plane, std::uint32_t free_blocks) {
  const std::uint64_t pages = blocks.geometry().pages_per_block;
  return blocks.available_blocks(plane, Namespace::block) * pages + open_pages(blocks, plane) < free_blocks * pages;
}

}  // namespace

/// Asks whether the program of a page that was just allocated fails; if so the page is lost and its block retired.
bool BlockFtl::program_failed(PhysicalPageAddress ppa) {
  if (faults_ == nullptr) return false;
  const BlockId block = blocks_.block_of(ppa);
  if (!faults_->program_fails(ppa, blocks_.erase_count(block))) return false;
  ++stats_.program_failures;
  blocks_.invalidate(ppa);
  blocks_.retire(block);
  failed_.push_back(block);
  return true;
}

/// The next page of `stream` in `plane` that takes a program. The failed ones before it belong to the same plane, which
/// runs them one after the other.
std::optional<PhysicalPageAddress> BlockFtl::program(PlaneId plane, Stream stream, OpClass op_class, Phase* ops) {
  while (const auto ppa = blocks_.allocate(plane, stream)) {
    note_first_page(*ppa);
    if (ops != nullptr) ops->push_back(op(*ppa, PageOpKind::program, op_class));
    if (!program_failed(*ppa)) return ppa;
  }
  return std::nullopt;
}

/// Moves up to `limit` valid pages of `from` within its plane, in two phases. False: there was no room for a page.
bool BlockFtl::move_pages(BlockId from, Stream stream, std::uint32_t limit, std::vector<Phase>* phases,
                          std::uint64_t& moved) {
  constexpr std::uint32_t kAhead = 64;  // map entries fetched before they are needed
  struct Page {
    PhysicalPageAddress ppa;
    LogicalPage logical;
  };
  std::array<Page, kAhead> batch;
  const PlaneId plane = blocks_.plane_of(from);
  const std::uint64_t first = blocks_.first_page(from).value;
  Phase reads;
  Phase programs;
  bool room = true;
  std::uint32_t next = 0;
  while (room && limit > 0) {
    std::uint32_t size = 0;
    for (auto page = blocks_.next_valid(from, next); page && size < std::min(kAhead, limit);
         page = blocks_.next_valid(from, next)) {
      const PhysicalPageAddress ppa{first + *page};
      batch[size] = {ppa, map_.resident(ppa)};
      map_.prefetch(batch[size++].logical);
      next = *page + 1;
    }
    if (size == 0) break;
    limit -= size;
    for (std::uint32_t i = 0; i < size && room; ++i) {
      const auto [ppa, logical] = batch[i];
      const auto to = program(plane, stream, OpClass::gc, phases != nullptr ? &programs : nullptr);
      room = to.has_value();
      if (!room) break;
      PageOp read;
      if (!plan_read(logical, ppa, OpClass::gc, read)) lost_.insert(logical.value);
      if (phases != nullptr) reads.push_back(read);
      if (store_.carried()) {
        store_.write(*to, store_.read_verified(ppa, host_tag(logical), config_.check), host_tag(logical));
      }
      map_.rebind(logical, *to);
      entry_moved(logical);
      blocks_.invalidate(ppa);
      ++moved;
    }
  }
  if (phases != nullptr) {
    phases->push_back(std::move(reads));
    phases->push_back(std::move(programs));
  }
  return room;
}

void BlockFtl::erase(BlockId block, std::vector<Phase>* phases) {
  blocks_.begin_erase(block);
  if (phases != nullptr) phases->push_back({op(blocks_.first_page(block), PageOpKind::erase, OpClass::gc)});
  store_.erase(block);
  if (faults_ != nullptr && faults_->erase_fails(block, blocks_.erase_count(block))) {
    ++stats_.erase_failures;
    blocks_.fail_erase(block);
  } else {
    // The erase precedes every later program of this block in the plan, so the block may be reused in the state at
    // once.
    blocks_.finish_erase(block);
  }
}

/// Its valid pages find room, whatever happens to free blocks in between: the last of them is collection's.
bool BlockFtl::fits(BlockId victim, Stream stream) const {
  const PlaneId plane = blocks_.plane_of(victim);
  const std::uint32_t spare = blocks_.available_blocks(plane, Namespace::block) > 0 ? geometry_.pages_per_block : 0;
  return blocks_.valid_pages(victim) <= blocks_.open_pages(plane, stream) + spare;
}

/// Where the pages of a block move to: translation pages keep to themselves.
Stream BlockFtl::stream_for(BlockId victim) const {
  if (!cache_) return Stream::gc;
  const auto page = blocks_.next_valid(victim, 0);
  if (!page) return Stream::gc;
  return map_.resident({blocks_.first_page(victim).value + *page}).value < exported_ ? Stream::gc : Stream::map;
}

bool BlockFtl::choose_victim(PlaneId plane) {
  if (collecting(plane) != kNone) return true;
  const std::optional<BlockId> victim = blocks_.victim(plane, Namespace::block);
  if (!victim || !fits(*victim, stream_for(*victim))) return false;
  const std::uint32_t moves = blocks_.valid_pages(*victim);
  collections_[plane.value] = {.victim = victim->value, .moves = moves, .gain = geometry_.pages_per_block - moves};
  blocks_.begin_collect(*victim);
  return true;
}

bool BlockFtl::in_steps(const PlanBuilder& plan) const { return config_.gc_pace == GcPace::steps && plan.records(); }

/// A write that opens a block collects whole victims before it while there are no more free blocks than this. In steps
/// it waits for the last but one only, without which it could not be written.
std::uint32_t BlockFtl::urgent_free_blocks(const PlanBuilder& plan) const {
  return in_steps(plan) ? 1 : config_.gc_free_blocks;
}

/// Moves what is left of the plane's victim and erases it.
bool BlockFtl::finish_victim(PlaneId plane, std::vector<Phase>* phases) {
  const BlockId victim{collecting(plane)};
  if (!move_pages(victim, stream_for(victim), geometry_.pages_per_block, phases, stats_.gc_pages_moved)) return false;
  collecting(plane) = kNone;
  erase(victim, phases);
  ++stats_.gc_erases;
  return true;
}

void BlockFtl::collect(PlaneId plane, PlanBuilder& plan) {
  std::vector<Phase> phases;
  std::vector<Phase>* record = plan.records() ? &phases : nullptr;
  bool erased = false;
  const std::uint32_t urgent = urgent_free_blocks(plan);
  while (blocks_.available_blocks(plane, Namespace::block) <= urgent && choose_victim(plane)) {
    if (!finish_victim(plane, record)) break;
    erased = true;
  }
  if (erased && config_.wear_spread > 0) level_wear(plane, record);
  if (!phases.empty()) plan.collect(plane, std::move(phases));
}

/// Static wear levelling: the data of the least worn block, which nobody overwrites, moves into the most worn free
/// block, and the two change places in wear.
void BlockFtl::level_wear(PlaneId plane, std::vector<Phase>* phases) {
  if (collecting(plane) != kNone) return;
  const std::optional<BlockId> block = blocks_.least_worn(plane, Namespace::block);
  if (!block || blocks_.most_erases(plane) - blocks_.erase_count(*block) <= config_.wear_spread) return;
  if (!fits(*block, Stream::cold)) return;
  blocks_.begin_collect(*block);
  if (!move_pages(*block, Stream::cold, geometry_.pages_per_block, phases, stats_.wear_pages_moved)) {
    collecting(plane) = block->value;  // programs failed: what is left of it is collected
    return;
  }
  erase(*block, phases);
  ++stats_.wear_erases;
}

/// Moves up to `limit` pages of the plane's victim, and erases it once it is empty.
void BlockFtl::collect_pages(PlaneId plane, std::uint32_t limit, std::vector<Phase>& phases) {
  const BlockId victim{collecting(plane)};
  if (limit > 0) move_pages(victim, stream_for(victim), limit, &phases, stats_.gc_pages_moved);
  if (blocks_.valid_pages(victim) == 0) {
    collecting(plane) = kNone;
    erase(victim, &phases);
    ++stats_.gc_erases;
    if (config_.wear_spread > 0) level_wear(plane, &phases);
  }
  std::erase_if(phases, [](const Phase& phase) { return phase.empty(); });
}

/// A victim and the writes that pay for it take the pages of a block before it is erased. It is begun when no more than
/// those and a quarter are free beyond gc_free_blocks, so that these are free when a write opens a block. As long as
/// they are, a victim that has lost a page just now is left alone: sequential writes empty it.
bool BlockFtl::time_to_collect(PlaneId plane) {
  constexpr std::uint64_t kQuietWrites = 16;  // to each plane
  const std::uint32_t available = blocks_.available_blocks(plane, Namespace::block);
  if (collecting(plane) != kNone || available != config_.gc_free_blocks) return available <= config_.gc_free_blocks;
  return open_pages(blocks_, plane) <= geometry_.pages_per_block + geometry_.pages_per_block / 4 &&
         blocks_.settled_gain(plane, Namespace::block, kQuietWrites * geometry_.planes()) > 0;
}

/// Appends the steps of collection that the written pages owe. The translation pages that they change pay later.
void BlockFtl::pay(IoPlan& plan) {
  PlanBuilder steps(true, load_);
  for (const PlaneId plane : std::exchange(owed_, {})) {
    if (!time_to_collect(plane) || !choose_victim(plane)) continue;
    Collection& collection = collections_[plane.value];
    collection.debt += std::uint64_t{collection.moves} * (is_late(blocks_, plane, config_.gc_free_blocks) ? 2 : 1);
    const std::uint64_t pages = collection.debt / collection.gain;
    collection.debt %= collection.gain;
    std::vector<Phase> phases;
    collect_pages(plane, static_cast<std::uint32_t>(pages), phases);
    if (!phases.empty()) steps.collect(plane, std::move(phases));
  }
  write_stale_translation_pages(steps);
  std::vector<Phase> behind = steps.finish();
  plan.behind = behind.size();
  std::ranges::move(behind, std::back_inserter(plan.phases));
}

bool BlockFtl::wants_background_step(PlaneId plane) const {
  return blocks_.available_blocks(plane, Namespace::block) <= config_.background_free_blocks &&
         config_.background_free_blocks > 0 && !read_only();
}

std::optional<IoPlan> BlockFtl::background_step(PlaneId plane) {
  if (!wants_background_step(plane) || !choose_victim(plane)) return std::nullopt;
  IoPlan plan;
  collect_pages(plane, config_.gc_step_pages, plan.phases);
  std::optional<IoPlan> step = follow_up(std::move(plan));
  if (step) ++stats_.background_steps;
  return step;
}

std::optional<IoPlan> BlockFtl::wear_step(PlaneId plane) {
  if (config_.wear_spread == 0 || read_only()) return std::nullopt;
  IoPlan plan;
  level_wear(plane, &plan.phases);
  return follow_up(std::move(plan));
}

/// Of a plan that nobody asked for: adds the translation pages that it changes. None for a plan without operations.
std::optional<IoPlan> BlockFtl::follow_up(IoPlan plan) {
  std::erase_if(plan.phases, [](const Phase& phase) { return phase.empty(); });
  if (plan.phases.empty()) return std::nullopt;
  PlanBuilder builder(true, load_);
  write_stale_translation_pages(builder);
  std::ranges::move(builder.finish(), std::back_inserter(plan.phases));
  return plan;
}

/// Moves what is still valid out of blocks that failed. Where there is no room it stays for now: it can be read.
void BlockFtl::empty_failed_blocks(PlanBuilder& plan) {
  for (const BlockId block : std::exchange(failed_, {})) {
    if (blocks_.state(block) != BlockState::retired) continue;  // nothing valid is left
    const PlaneId plane = blocks_.plane_of(block);
    collect(plane, plan);
    // As for the host, the last free block belongs to collection.
    const bool spare = blocks_.available_blocks(plane, Namespace::block) > 1;
    const Stream stream = stream_for(block);
    if (blocks_.valid_pages(block) > blocks_.open_pages(plane, stream) + (spare ? geometry_.pages_per_block : 0)) {
      failed_.push_back(block);
      continue;
    }
    std::vector<Phase> phases;
    move_pages(block, stream, geometry_.pages_per_block, plan.records() ? &phases : nullptr,
               stats_.retired_pages_moved);
    if (blocks_.state(block) == BlockState::retired) failed_.push_back(block);
    if (!phases.empty()) plan.collect(plane, std::move(phases));
  }
}

}  // namespace csdsim::ftl
