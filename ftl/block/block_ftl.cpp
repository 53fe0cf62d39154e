#include "ftl/block/block_ftl.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "ftl/block/block_parts.h"

namespace csdsim::ftl {
namespace {

/// Plans the map operations that a request needs before its own operations.
IoStatus access_maps(BlockParts& parts, Bytes offset, Bytes length, bool change, PlanBuilder& plan) {
  if (!parts.entries.are_cached() || length.value == 0) return IoStatus::ok;
  const std::uint64_t size = parts.flash.page_size.value;
  return parts.map_pages.access(LogicalPage{offset.value / size}, LogicalPage{(offset.value + length.value - 1) / size},
                                change, plan);
}

/// The collection that the pages of a request pay for.
std::vector<Phase> pay(BlockParts& parts) {
  PlanBuilder steps(PlanBuilder::Records::operations, parts.load);
  parts.collector.pay(steps);
  parts.map_pages.write_stale(steps);  // the translation pages that they change pay later
  return steps.finish();
}

}  // namespace

std::vector<Phase> IoPlan::take_behind() {
  const auto first = phases.end() - static_cast<std::ptrdiff_t>(std::exchange(behind, 0));
  std::vector<Phase> taken(std::make_move_iterator(first), std::make_move_iterator(phases.end()));
  phases.erase(first, phases.end());
  return taken;
}

BlockFtl::BlockFtl(const BlockFtlConfig& config, BlockManager& blocks, BackingStore& store, MediaFaults* faults)
    : stats_(std::make_unique<BlockFtlStats>()),
      parts_(std::make_unique<BlockParts>(config, blocks, store, faults, *stats_)) {}
BlockFtl::~BlockFtl() = default;

Bytes BlockFtl::capacity() const { return parts_->flash.page_size * parts_->flash.exported; }
Bytes BlockFtl::page_size() const { return parts_->flash.page_size; }
bool BlockFtl::map_is_cached() const { return parts_->entries.are_cached(); }
bool BlockFtl::places_dynamically() const { return parts_->flash.config.allocation == PageAllocation::dynamic; }
const StripeOrder& BlockFtl::stripe_order() const { return parts_->flash.config.stripe_order; }
bool BlockFtl::collects_in_background() const { return parts_->flash.config.background_free_blocks > 0; }
bool BlockFtl::refreshes() const { return parts_->ages.counts(); }
PhysicalPageAddress BlockFtl::lookup(LogicalPage page) const { return parts_->map.lookup(page); }
void BlockFtl::prefetch_write(Bytes offset, Bytes length) { parts_->writer.prefetch(offset, length); }
bool BlockFtl::read_only() const { return parts_->flash.blocks.read_only(); }
const BlockFtlStats& BlockFtl::stats() const { return *stats_; }
std::uint64_t BlockFtl::trims() const { return parts_->trims.trims(); }
bool BlockFtl::has_unsaved_trims() const { return parts_->trims.any_unsaved(); }
void BlockFtl::trims_saved(std::uint64_t trims) { parts_->trims.save(trims); }
BlockDump BlockFtl::power_loss(const PowerCut& cut) const { return save_block(*parts_, cut); }
void BlockFtl::coalesce(std::function<bool(PhysicalPageAddress)> held) { parts_->writer.coalesce(std::move(held)); }
void BlockFtl::count_moves(std::uint64_t pages_of_part) { parts_->mover.count_moves(pages_of_part); }
const std::vector<std::uint64_t>& BlockFtl::moves() const { return parts_->mover.moves(); }
void BlockFtl::on_replaced(std::function<void(PhysicalPageAddress, PhysicalPageAddress)> told, bool moves) {
  if (moves) parts_->mover.on_moved(told);
  parts_->writer.on_replaced(std::move(told));
}
void BlockFtl::place_by(PlaneLoad& load) { parts_->load = &load; }
void BlockFtl::pass(SimTime now) { parts_->ages.pass(now); }

IoStatus BlockFtl::read(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops) {
  if (!in_range(offset, length)) return IoStatus::out_of_range;
  return parts_->reader.read(offset, length, out, ops);
}

IoPlan BlockFtl::find(Bytes offset, Bytes length) {
  IoPlan plan;
  if (!map_is_cached() || !in_range(offset, length)) return plan;
  PlanBuilder builder(PlanBuilder::Records::operations, parts_->load);
  plan.status = access_maps(*parts_, offset, length, false, builder);
  plan.phases = builder.finish();
  return plan;
}

IoPlan BlockFtl::read(Bytes offset, Bytes length, std::span<std::byte> out) {
  if (!in_range(offset, length)) return {IoStatus::out_of_range, {}};
  IoPlan plan = find(offset, length);
  Phase ops;
  const IoStatus status = parts_->reader.read(offset, length, out, ops);
  if (plan.status == IoStatus::ok || status != IoStatus::ok) plan.status = status;
  if (!ops.empty()) plan.phases.push_back(std::move(ops));
  return plan;
}

KeptPages BlockFtl::keep(Bytes offset, Bytes length) {
  if (map_is_cached() || length.value == 0 || !in_range(offset, length)) return {};
  return parts_->writer.keep(offset, length);
}

IoStatus BlockFtl::write_pages(Bytes offset, Bytes length, std::span<const std::byte> data, const KeptPages* kept,
                               PlacementHandle handle, PlanBuilder& builder) {
  BlockParts& p = *parts_;
  if (!in_range(offset, length)) return IoStatus::out_of_range;
  if (p.flash.store.carried() && data.size() != length.value) throw InternalError("write: buffer and length disagree");
  if (handle.value >= p.flash.config.handles)
    throw InternalError(fmt::format("write: handle {} of {}", handle.value, p.flash.config.handles));
  if (read_only()) return IoStatus::read_only;
  IoStatus status = access_maps(*parts_, offset, length, true, builder);
  if (status == IoStatus::ok) status = p.writer.write(offset, length, data, kept, handle, builder);
  p.placer.pad(builder);
  p.map_pages.write_stale(builder);
  return status;
}

IoPlan BlockFtl::write(Bytes offset, Bytes length, std::span<const std::byte> data, const KeptPages* kept,
                       PlacementHandle handle, std::optional<PlaneId> plane) {
  PlanBuilder builder(PlanBuilder::Records::operations, parts_->load);
  if (plane) [[unlikely]]
    parts_->placer.go_to(plane);
  const IoStatus status = write_pages(offset, length, data, kept, handle, builder);
  if (plane) [[unlikely]]
    parts_->placer.go_to(std::nullopt);
  return finish(status, builder);
}

std::optional<BlockFtl::LinePart> BlockFtl::write_in_line(Bytes offset, Bytes length, PlacementHandle handle,
                                                          std::uint32_t most) {
  BlockParts& p = *parts_;
  if (!in_range(offset, length) || read_only()) return std::nullopt;
  LinePart part;
  if (p.flash.config.units_per_program == 1) {
    const HostWriter::Moved page = p.writer.write_alone(offset, length, handle, p.load);
    if (!page.to.valid()) return std::nullopt;
    part.first = page.to;
    part.writes = 1;
    part.program = p.flash.op(page.to, PageOpKind::program, OpClass::host);
    if (p.writer.tells_replaced() && page.old.valid()) part.replaced = p.flash.blocks.block_of(page.old);
  } else {
    if (!in_range(offset, length * most)) most = 1;
    const BlockManager::PageRun run = p.writer.join_line(offset, length, most, handle, p.load);
    if (run.count == 0) return std::nullopt;
    part.first = run.first;
    part.writes = static_cast<std::uint32_t>(run.count * p.flash.page_size.value / length.value);
  }
  part.plane = p.flash.blocks.plane_of(part.first);
  if (p.collector.is_owed()) part.behind = pay(p);
  return part;
}

IoStatus BlockFtl::write_state(Bytes offset, Bytes length, PlacementHandle handle) {
  BlockParts& p = *parts_;
  PlanBuilder state(PlanBuilder::Records::nothing, parts_->load);
  const IoStatus status = write_pages(offset, length, {}, nullptr, handle, state);
  if (!p.collector.is_owed()) return status;
  p.collector.pay(state);
  p.map_pages.write_stale(state);
  return status;
}

IoPlan BlockFtl::fill_lines(std::span<const PhysicalPageAddress> pages) {
  PlanBuilder builder(PlanBuilder::Records::operations, parts_->load);
  for (const PhysicalPageAddress page : pages) parts_->placer.fill_line(page, builder);
  return finish(IoStatus::ok, builder);
}

/// The plan of a request, and behind it the collection that its pages pay for.
IoPlan BlockFtl::finish(IoStatus status, PlanBuilder& builder) {
  IoPlan plan{.status = status, .phases = builder.finish()};
  if (!parts_->collector.is_owed()) return plan;
  std::vector<Phase> behind = pay(*parts_);
  plan.behind = behind.size();
  std::ranges::move(behind, std::back_inserter(plan.phases));
  return plan;
}

IoPlan BlockFtl::trim(Bytes offset, Bytes length) {
  if (!in_range(offset, length)) return {IoStatus::out_of_range, {}};
  if (read_only()) return {IoStatus::read_only, {}};
  const Bytes size = page_size();
  const std::uint64_t first = (offset.value + size.value - 1) / size.value;
  const std::uint64_t last = (offset.value + length.value) / size.value;
  PlanBuilder builder(PlanBuilder::Records::operations, parts_->load);
  IoPlan plan;
  if (first < last) plan.status = access_maps(*parts_, size * first, size * (last - first), true, builder);
  plan.phases = builder.finish();
  if (plan.status != IoStatus::ok) return plan;
  const PageMap& map = parts_->map;
  for (LogicalPage page = map.next_written(LogicalPage{first}); page.value < last;
       page = map.next_written(LogicalPage{page.value + 1}))
    parts_->writer.trim(page);
  return plan;
}

void BlockFtl::forget() {
  const BlockFlash& flash = parts_->flash;
  parts_ = std::make_unique<BlockParts>(flash.config, flash.blocks, flash.store, flash.faults, *stats_);
  if (observer_ != nullptr) observe_placement(*observer_);
}

void BlockFtl::observe_placement(PlacementObserver& observer) {
  observer_ = &observer;
  parts_->mover.observe(&observer);
  parts_->collector.observe(&observer);
}

std::uint32_t BlockFtl::unit_pages_left(PlaneId plane, PlacementHandle handle) const {
  const BlockManager& blocks = parts_->flash.blocks;
  const std::uint32_t left = blocks.open_pages(plane, host_stream(handle));
  return left == 0 ? parts_->flash.geometry.pages_per_block : left;
}

IoPlan BlockFtl::end_unit(PlaneId plane, PlacementHandle handle) {
  IoPlan plan;
  if (const auto block = parts_->flash.blocks.open_block(plane, host_stream(handle)))
    parts_->mover.close(*block, &plan.phases);
  return plan;
}

BlockRecovery BlockFtl::recover(const BlockDump& dump) {
  PlanBuilder builder(PlanBuilder::Records::operations, parts_->load);
  BlockRecovery recovery = recover_block(*parts_, dump, builder);
  IoPlan images = finish(IoStatus::ok, builder);
  recovery.plan.behind = images.behind;
  std::ranges::move(images.phases, std::back_inserter(recovery.plan.phases));
  return recovery;
}

bool BlockFtl::wants_background_step(PlaneId plane) const { return parts_->collector.wants_background_step(plane); }

std::optional<IoPlan> BlockFtl::background_step(PlaneId plane) {
  std::optional<IoPlan> step = follow_up(parts_->collector.background_step(plane));
  if (step) ++parts_->flash.stats.background_steps;
  return step;
}

std::optional<IoPlan> BlockFtl::wear_step(PlaneId plane) {
  if (!parts_->leveller.levels() || read_only()) return std::nullopt;
  std::vector<Phase> phases;
  parts_->leveller.level(plane, &phases);
  return follow_up(std::move(phases));
}

std::optional<IoPlan> BlockFtl::refresh_step(PlaneId plane) {
  if (read_only()) return std::nullopt;
  return follow_up(parts_->refresher.step(plane));
}

/// The plan of work that no request asked for, with the translation pages that it changes. Empty without operations.
std::optional<IoPlan> BlockFtl::follow_up(std::vector<Phase> phases) {
  std::erase_if(phases, [](const Phase& phase) { return phase.empty(); });
  if (phases.empty()) return std::nullopt;
  PlanBuilder builder(PlanBuilder::Records::operations, parts_->load);
  parts_->map_pages.write_stale(builder);
  std::ranges::move(builder.finish(), std::back_inserter(phases));
  return IoPlan{.phases = std::move(phases)};
}

void BlockFtl::precondition(Bytes working_set, std::optional<std::uint64_t> seed) {
  parts_->filler.precondition(working_set, seed);
}
void BlockFtl::age(double overwrites, std::uint64_t seed, const AgeProgress& progress) {
  parts_->filler.age(overwrites, seed, progress);
}

}  // namespace csdsim::ftl
