// Pages for a mapping policy: what it may take, and the check of what it answers.
#include "ftl/kv/kv_pages.h"

#include <fmt/format.h>

#include "base/error.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

void KvFtl::Pages::check(PlaneId plane) const {
  if (plane.value < geometry().planes()) return;
  throw PolicyError(fmt::format("mapping policy \"{}\" asks for plane {} of a flash with {}", ftl_.policy_->name(),
                                plane.value, geometry().planes()));
}

void KvFtl::Pages::check(ChannelId channel) const {
  if (channel.value < geometry().channels) return;
  throw PolicyError(fmt::format("mapping policy \"{}\" asks for channel {} of a flash with {}", ftl_.policy_->name(),
                                channel.value, geometry().channels));
}

PhysicalPageAddress KvFtl::Pages::take(PlaneId wanted, AppendPoint point) {
  check(wanted);
  if (programs_ == nullptr) {
    throw PolicyError(
        fmt::format("mapping policy \"{}\" takes a page outside of place() and move()", ftl_.policy_->name()));
  }
  for (;;) {
    const auto ppa = ftl_.next_page(wanted, point);
    if (!ppa) {
      exhausted_ = true;
      return PhysicalPageAddress::invalid();
    }
    programs_->push_back(ftl_.op(*ppa, PageOpKind::program, op_class_));
    const BlockId block = ftl_.blocks_.block_of(*ppa);
    MediaFaults* const faults = ftl_.faults_;
    // Programs do not fail once the last spare block is used: space was reserved for the append in progress, and it
    // must complete.
    if (faults == nullptr || ftl_.blocks_.read_only() ||
        !faults->program_fails(*ppa, ftl_.blocks_.erase_count(block))) {
      ++taken_;
      return last_ = *ppa;
    }
    ++ftl_.stats_.program_failures;
    ftl_.blocks_.invalidate(*ppa);
    ftl_.points_.forget(block);
    ftl_.blocks_.retire(block);
    ftl_.failed_.push_back(block);
  }
}

void KvFtl::Pages::close(AppendPoint point) {
  for (const BlockId block : ftl_.points_.close(point)) {
    if (ftl_.blocks_.valid_pages(block) == 0) emptied_.push_back(block);
  }
}

std::uint64_t KvFtl::Pages::free_pages(PlaneId plane) const {
  check(plane);
  const std::uint64_t blocks = ftl_.blocks_.available_blocks(plane);
  return blocks * geometry().pages_per_block + ftl_.points_.open_pages(plane);
}

double KvFtl::Pages::read_load(ChannelId channel) const {
  check(channel);
  return ftl_.read_load_[channel.value];
}

std::uint64_t KvFtl::Pages::valid_pages(ChannelId channel) const {
  check(channel);
  return ftl_.channel_pages_[channel.value];
}

/// Of `wanted`; else of the nearest plane that has one, own channel first; else of another append point.
std::optional<PhysicalPageAddress> KvFtl::next_page(PlaneId wanted, AppendPoint point) {
  const auto search = [&](AppendPoint from) -> std::optional<PhysicalPageAddress> {
    if (const auto ppa = points_.take(wanted, from)) return ppa;
    const std::uint32_t per_channel = geometry_.planes_per_channel();
    for (std::uint32_t c = 0; c < geometry_.channels; ++c) {
      const std::uint32_t channel = (geometry_.channel_of(wanted).value + c) % geometry_.channels;
      for (std::uint32_t i = 0; i < per_channel; ++i) {
        if (const auto ppa = points_.take(PlaneId{channel * per_channel + (wanted.value + i) % per_channel}, from))
          return ppa;
      }
    }
    return std::nullopt;
  };
  auto ppa = search(point);
  // The last pages may lie in the open blocks of the others.
  if (!ppa && point != kSharedPoint) ppa = search(kSharedPoint);
  if (!ppa && point != kMovedPoint) ppa = search(kMovedPoint);
  if (!ppa) ppa = points_.take_from_any();
  if (ppa && point != kMovedPoint && blocks_.plane_of(*ppa) != wanted) ++stats_.misplaced_pages;
  return ppa;
}

/// Throws unless the policy took one page and returned it.
void KvFtl::check_answer(std::string_view call, const KvPageId& page, PhysicalPageAddress ppa) const {
  const auto wrong = [&](const std::string& what) {
    throw PolicyError(fmt::format("mapping policy \"{}\": {}({}) {}", policy_->name(), call, to_string(page), what));
  };
  if (!ppa.valid()) wrong("returned no page");
  if (!geometry_.contains(ppa)) {
    wrong(fmt::format("returned page {}, which does not exist: the flash has {}", ppa.value, geometry_.pages()));
  }
  if (ppa != pages_->last()) {
    if (blocks_.valid(ppa)) {
      const PageOwner holder = owners_.get(ppa.value);
      wrong(fmt::format("returned page {}, which holds {} already", ppa.value,
                        holder.slot < slots_.size() && slots_[holder.slot] != nullptr ? to_string(page_id(holder))
                                                                                      : "something else"));
    }
    wrong(fmt::format("returned page {}, which it did not take", ppa.value));
  }
  if (pages_->taken() != 1) {
    wrong(fmt::format("took {} pages for one, the last of them page {}", pages_->taken(), ppa.value));
  }
}

PhysicalPageAddress KvFtl::place(const KvPageId& page, const Sequence& s, PageOwner owner, FlushJob& job) {
  const auto ppa = place_if_room(page, s, owner, job);
  if (!ppa) throw InternalError("a flash page was booked but is not there");
  return *ppa;
}

std::optional<PhysicalPageAddress> KvFtl::place_if_room(const KvPageId& page, const Sequence& s, PageOwner owner,
                                                        FlushJob& job) {
  pages_->begin(job.programs, OpClass::flush);
  const PhysicalPageAddress ppa = policy_->place(page, s.info(), *pages_);
  pages_->end();
  if (pages_->exhausted()) return std::nullopt;
  check_answer("place", page, ppa);
  take_page(ppa, owner);
  return ppa;
}

/// Empty if the flash has no page left that does not fail.
std::optional<PhysicalPageAddress> KvFtl::place_moved(const KvPageId& page, const Sequence& s, PageOwner owner,
                                                      PhysicalPageAddress from, FlushJob& job) {
  pages_->begin(job.programs, OpClass::gc);
  const PhysicalPageAddress ppa = policy_->move(page, s.info(), from, *pages_);
  pages_->end();
  if (pages_->exhausted()) return std::nullopt;
  check_answer("move", page, ppa);
  take_page(ppa, owner);
  return ppa;
}

void KvFtl::take_page(PhysicalPageAddress ppa, PageOwner owner) {
  owners_[ppa.value] = owner;
  if (config_.refresh_age.ps > 0 && geometry_.page_in_block(ppa) == 0) {
    const BlockId block = blocks_.block_of(ppa);
    written_.push_back({block, blocks_.erase_count(block), now_});
  }
  ++channel_pages_[geometry_.channel_of(blocks_.plane_of(ppa)).value];
}

/// True if its block may be erased now.
bool KvFtl::drop_page(PhysicalPageAddress ppa) {
  lost_.erase(ppa.value);
  if (is_parked(ppa)) {
    parked_.erase(ppa.value);
    dram_.release(DramUse::flush_pending, geometry_.page_size);
    return false;
  }
  --channel_pages_[geometry_.channel_of(blocks_.plane_of(ppa)).value];
  return blocks_.invalidate(ppa);
}

/// Counts a read for attention; older reads weigh half as much after every 1,024 a channel.
void KvFtl::note_read(PhysicalPageAddress ppa) {
  constexpr std::uint32_t kHalving = 1024;
  if (reads_to_halving_ == 0) {
    for (double& load : read_load_) load /= 2;
    reads_to_halving_ = kHalving * geometry_.channels;
  }
  --reads_to_halving_;
  read_load_[geometry_.channel_of(blocks_.plane_of(ppa)).value] += 1;
}

}  // namespace csdsim::ftl
