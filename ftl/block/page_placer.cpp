#include "ftl/block/page_placer.h"

#include <algorithm>
#include <utility>

namespace csdsim::ftl {

/// A page in `plane`, if there is room for it once garbage has been collected.
std::optional<PhysicalPageAddress> PagePlacer::place_in(PlaneId plane, Stream stream, PlanBuilder& plan) {
  for (;;) {
    if (is_host_stream(stream)) fill_from(plane, stream, plan);
    if (flash_.blocks.open_pages(plane, stream) == 0) {
      collector_.collect(plane, plan);
      // The last free block of a plane belongs to collection: without it nothing could be moved any more.
      if (flash_.blocks.open_pages(plane, stream) == 0 && flash_.free_blocks(plane) <= 1) return std::nullopt;
    }
    plan.touch(plane);
    const OpClass op_class = stream == Stream::map ? OpClass::map : OpClass::host;
    const PhysicalPageAddress ppa = appender_.take(plane, stream, op_class, plan.programs()).value();
    collector_.owe(plane, plan);
    if (!appender_.failed(ppa)) return ppa;
  }
}

/// Call it for each unit of a request that is placed in `plane`: where the plane changes, the word line before it ends.
void PagePlacer::fill_from(PlaneId plane, Stream stream, const PlanBuilder& plan) {
  if (!flash_.config.pads) return;
  const Filling now{plane, stream};
  if (filling_ && *filling_ != now) pad(plan);
  filling_ = now;
}

void PagePlacer::pad(const PlanBuilder& plan) {
  if (!filling_) return;
  const Filling last = *std::exchange(filling_, std::nullopt);
  fill_open_line(last.plane, last.stream, nullptr, plan);
}

/// The empty units share the work of collection as others do.
void PagePlacer::fill_open_line(PlaneId plane, Stream stream, Phase* ops, const PlanBuilder& plan) {
  for (std::uint32_t empty = lines_.fill(plane, stream, OpClass::host, ops); empty > 0; --empty)
    collector_.owe(plane, plan);
}

void PagePlacer::fill_line(PhysicalPageAddress ppa, PlanBuilder& plan) {
  BlockManager& blocks = flash_.blocks;
  const std::uint32_t line = flash_.config.units_per_program;
  const BlockId block = blocks.block_of(ppa);
  const PlaneId plane = blocks.plane_of(block);
  const Stream stream = blocks.stream_of(block);
  if (!is_host_stream(stream) || blocks.open_block(plane, stream) != block) return;
  const std::uint32_t written = blocks.written_pages(block);
  if (written % line == 0 || (ppa.value - blocks.first_page(block).value) / line != written / line) return;
  plan.touch(plane);
  fill_open_line(plane, stream, plan.programs(), plan);
}

/// Sets the cursor to the plane of the next page: that of the word line that is open, otherwise the one with the least
/// load. True: it was chosen by its load.
bool PagePlacer::choose_plane(std::uint32_t& cursor, Stream stream, const PlaneLoad* load) const {
  if (load == nullptr) return false;
  if (flash_.blocks.open_pages(stripe_.plane_of_rank(cursor), stream) % flash_.config.units_per_program != 0)
    return false;
  cursor = load->least_from(cursor);
  return true;
}

PagePlacer::Spot PagePlacer::next_spot(LogicalPage page, Stream stream, const PlaneLoad* load) {
  const std::uint32_t line = flash_.config.units_per_program;
  const bool fixed = flash_.config.allocation == PageAllocation::fixed;
  std::uint32_t& cursor = cursors_[handle_of(stream).value];
  Spot spot;
  spot.chosen = !fixed && choose_plane(cursor, stream, load);
  spot.plane = fixed ? stripe_.plane_at(page.value / line) : stripe_.plane_of_rank(cursor);
  spot.in_block = flash_.blocks.open_pages(spot.plane, stream);
  spot.in_line = line - (flash_.geometry.pages_per_block - spot.in_block) % line;
  spot.in_turn = fixed ? line - static_cast<std::uint32_t>(page.value % line) : spot.in_line;
  return spot;
}

BlockManager::PageRun PagePlacer::place_in_line(LogicalPage page, Stream stream, std::uint32_t count,
                                                std::uint32_t most, const PlaneLoad* load) {
  if (wanted_) return {};
  const Spot spot = next_spot(page, stream, load);
  const std::uint32_t room = std::min({spot.in_line - 1, spot.in_block - 1, spot.in_turn});
  if (spot.in_block == 0 || count > room) return {};
  if (most > 1) most = collector_.is_idle(spot.plane) ? std::min(most, room / count) : 1;
  collector_.owe(spot.plane, count * most);
  return flash_.blocks.allocate_run(spot.plane, stream, count * most);
}

PhysicalPageAddress PagePlacer::place_alone(LogicalPage page, Stream stream, const PlaneLoad* load) {
  if (wanted_) return PhysicalPageAddress::invalid();
  const bool fixed = flash_.config.allocation == PageAllocation::fixed;
  std::uint32_t& cursor = cursors_[handle_of(stream).value];
  if (!fixed && load != nullptr) cursor = load->least_from(cursor);
  const PlaneId plane = fixed ? stripe_.plane_at(page.value) : stripe_.plane_of_rank(cursor);
  if (flash_.blocks.open_pages(plane, stream) == 0) return PhysicalPageAddress::invalid();
  if (!fixed && ++cursor == flash_.geometry.planes()) cursor = 0;
  collector_.owe(plane, 1);
  return flash_.blocks.take_page(plane, stream);
}

BlockManager::PageRun PagePlacer::place_run(LogicalPage page, Stream stream, std::uint32_t most, PlanBuilder& plan) {
  if (wanted_) return {};
  const std::uint32_t line = flash_.config.units_per_program;
  const bool fixed = flash_.config.allocation == PageAllocation::fixed, one = flash_.geometry.planes() == 1;
  const Spot spot = next_spot(page, stream, plan.load());
  if (spot.in_block <= 1) return {};
  if (spot.chosen) plan.place(spot.plane);
  const auto run =
      flash_.blocks.allocate_run(spot.plane, stream, std::min({most, spot.in_block - 1, one ? most : spot.in_turn}));
  std::uint32_t& cursor = cursors_[handle_of(stream).value];
  if (!fixed && (run.first.value + run.count) % line == 0 && ++cursor == flash_.geometry.planes()) cursor = 0;
  plan.touch(spot.plane);
  if (Phase* const programs = plan.programs()) {
    if (programs->empty()) programs->reserve(run.count);
    for (std::uint32_t i = 0; i < run.count; ++i)
      programs->push_back(flash_.op({run.first.value + i}, PageOpKind::program, OpClass::host));
  }
  if (plan.paced()) collector_.owe(spot.plane, run.count);
  return run;
}

std::optional<PhysicalPageAddress> PagePlacer::place(LogicalPage page, Stream stream, PlanBuilder& plan) {
  const std::uint32_t line = flash_.config.units_per_program;
  if (flash_.config.allocation == PageAllocation::fixed) {
    const auto ppa = place_in(stripe_.plane_at(page.value / line), stream, plan);
    // Where its plane has lost too many blocks, what a recovery has to write goes to another.
    if (ppa || !flash_.blocks.read_only()) return ppa;
  }
  std::uint32_t& cursor = stream == Stream::map ? map_cursor_ : cursors_[handle_of(stream).value];
  if (wanted_ && stream != Stream::map) [[unlikely]]
    cursor = stripe_.rank_of(*wanted_);
  else if (choose_plane(cursor, stream, plan.load()))
    plan.place(stripe_.plane_of_rank(cursor));
  for (std::uint32_t tried = 0; tried < flash_.geometry.planes(); ++tried) {
    const auto ppa = place_in(stripe_.plane_of_rank(cursor), stream, plan);
    // The next plane has its turn when the word line is full.
    const bool open = ppa && (ppa->value + 1) % line != 0;
    if (!open && ++cursor == flash_.geometry.planes()) cursor = 0;
    if (ppa) return ppa;
  }
  return std::nullopt;
}

}  // namespace csdsim::ftl
