#include "ftl/kv/kv_pages.h"

#include <fmt/format.h>

#include "base/error.h"

namespace csdsim::ftl {

KvPages::KvPages(KvFlash& flash, const KvMappingPolicy& policy)
    : flash_(flash),
      policy_(policy),
      pages_per_channel_(flash.geometry.pages_per_plane() * flash.geometry.planes_per_channel()),
      points_(flash.blocks),
      read_load_(flash.geometry.channels),
      valid_pages_(flash.geometry.channels) {}

void KvPages::check(PlaneId plane) const {
  if (plane.value < geometry().planes()) return;
  throw PolicyError(fmt::format("mapping policy \"{}\" asks for plane {} of a flash with {}", policy_.name(),
                                plane.value, geometry().planes()));
}

void KvPages::check(ChannelId channel) const {
  if (channel.value < geometry().channels) return;
  throw PolicyError(fmt::format("mapping policy \"{}\" asks for channel {} of a flash with {}", policy_.name(),
                                channel.value, geometry().channels));
}

PhysicalPageAddress KvPages::take(PlaneId wanted, AppendPoint point) {
  check(wanted);
  if (programs_ == nullptr) {
    throw PolicyError(fmt::format("mapping policy \"{}\" takes a page outside of place() and move()", policy_.name()));
  }
  for (;;) {
    const PhysicalPageAddress ppa = next_page(wanted, point);
    if (!ppa.valid()) {
      exhausted_ = true;
      return ppa;
    }
    programs_->push_back(flash_.op(ppa, PageOpKind::program, op_class_));
    MediaFaults* const faults = flash_.faults;
    // Programs do not fail once the last spare block is used: space was reserved for the append in progress, and it
    // must complete.
    if (faults == nullptr || flash_.blocks.read_only() ||
        !faults->program_fails(ppa, flash_.blocks.erase_count(flash_.blocks.block_of(ppa)))) {
      ++taken_;
      return last_ = ppa;
    }
    const BlockId block = flash_.blocks.block_of(ppa);
    ++flash_.stats.program_failures;
    flash_.blocks.invalidate(ppa);
    points_.forget(block);
    flash_.blocks.retire(block);
    failed_.push_back(block);
  }
}

void KvPages::close(AppendPoint point) {
  for (const BlockId block : points_.close(point)) {
    if (flash_.blocks.valid_pages(block) == 0) emptied_.push_back(block);
  }
}

std::uint64_t KvPages::free_pages(PlaneId plane) const {
  check(plane);
  const std::uint64_t blocks = flash_.blocks.available_blocks(plane);
  return blocks * geometry().pages_per_block + points_.open_pages(plane);
}

double KvPages::read_load(ChannelId channel) const {
  check(channel);
  return read_load_[channel.value];
}

std::uint64_t KvPages::valid_pages(ChannelId channel) const {
  check(channel);
  return valid_pages_[channel.value];
}

/// The next page of the plane `wanted`. If it has none, one of the nearest plane that has, first in the same channel;
/// if no plane has, one of another append point. invalid() if there is none.
PhysicalPageAddress KvPages::next_page(PlaneId wanted, AppendPoint point) {
  PhysicalPageAddress ppa = points_.take(wanted, point);
  if (!ppa.valid()) ppa = search(wanted, point);
  // The last pages may lie in the open blocks of the others.
  if (!ppa.valid() && point != kSharedPoint) ppa = search(wanted, kSharedPoint);
  if (!ppa.valid() && point != kMovedPoint) ppa = search(wanted, kMovedPoint);
  if (!ppa.valid()) ppa = points_.take_from_any();
  if (ppa.valid() && point != kMovedPoint && flash_.blocks.plane_of(ppa) != wanted) ++flash_.stats.misplaced_pages;
  return ppa;
}

/// The next page of `point` in the nearest plane that has one.
PhysicalPageAddress KvPages::search(PlaneId wanted, AppendPoint point) {
  const std::uint32_t per_channel = flash_.geometry.planes_per_channel();
  for (std::uint32_t c = 0; c < flash_.geometry.channels; ++c) {
    const std::uint32_t channel = (flash_.geometry.channel_of(wanted).value + c) % flash_.geometry.channels;
    for (std::uint32_t i = 0; i < per_channel; ++i) {
      const PlaneId plane{channel * per_channel + (wanted.value + i) % per_channel};
      if (const PhysicalPageAddress ppa = points_.take(plane, point); ppa.valid()) return ppa;
    }
  }
  return PhysicalPageAddress::invalid();
}

void KvPages::note_read(PhysicalPageAddress ppa) {
  constexpr std::uint32_t kHalving = 1024;
  if (reads_to_halving_ == 0) {
    for (double& load : read_load_) load /= 2;
    reads_to_halving_ = kHalving * flash_.geometry.channels;
  }
  --reads_to_halving_;
  read_load_[channel_of(ppa)] += 1;
}

}  // namespace csdsim::ftl
