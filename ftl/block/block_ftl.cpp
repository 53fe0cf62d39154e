// The host's side of the block namespace: reads, writes, trims.
#include "ftl/block/block_ftl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "ftl/block/block_reserve.h"
#include "ftl/block/plan_builder.h"

namespace csdsim::ftl {
namespace {

/// Blocks a plane that can never hold exported data: the two open blocks, and one that collection always finds free.
constexpr std::uint32_t kReservedBlocks = 3;

/// The same with the open blocks of static wear levelling and of translation pages.
std::uint32_t reserved_blocks(const BlockFtlConfig& config) {
  return kReservedBlocks + (config.wear_spread > 0 ? 1 : 0) + (config.map_cache_entries ? 1 : 0);
}

}  // namespace

std::uint32_t blocks_without_data(const BlockFtlConfig& config) {
  return reserved_blocks(config) + config.gc_free_blocks;
}

void require_collectable(const BlockFtlConfig& config, std::uint32_t blocks) {
  const std::uint32_t needed = blocks_without_data(config);
  if (blocks > needed) return;
  throw UserError(
      fmt::format("the block namespace has {} blocks a plane, garbage collection needs more than {}", blocks, needed));
}

namespace {

std::uint64_t exported_pages(const BlockFtlConfig& config, const BlockManager& blocks) {
  const FlashGeometry& g = blocks.geometry();
  const std::uint32_t quota = blocks.quota(Namespace::block);
  if (!(config.over_provisioning >= 0 && config.over_provisioning < 1)) {
    throw UserError(fmt::format("over_provisioning is {}, it must be in [0, 1)", config.over_provisioning));
  }
  if (config.gc_free_blocks < 1) throw UserError("gc_free_blocks is 0, it must be at least 1");
  if (config.gc_step_pages < 1) throw UserError("gc_step_pages is 0, it must be at least 1");
  const std::uint32_t reserved = reserved_blocks(config);
  require_collectable(config, quota);
  const std::uint64_t per_plane_cap = std::uint64_t{quota - reserved} * g.pages_per_block;
  const double raw = static_cast<double>(std::uint64_t{quota} * g.pages_per_block * g.planes());
  const std::uint64_t pages =
      std::min(static_cast<std::uint64_t>(raw * (1 - config.over_provisioning)), per_plane_cap * g.planes());
  if (!config.map_cache_entries) return pages;
  if (*config.map_cache_entries == 0) throw UserError("the map cache holds no entry, it must hold at least 1");
  // Translation pages take their share; two pages a plane are lost to uneven shares.
  const std::uint64_t even = pages - std::min<std::uint64_t>(pages, 2 * std::uint64_t{g.planes()});
  const std::uint64_t entries = g.page_size.value / kMapEntryBytes;
  return even * entries / (entries + 1);
}

std::uint64_t translation_pages(const BlockFtlConfig& config, std::uint64_t exported, std::uint64_t entries) {
  return config.map_cache_entries ? (exported + entries - 1) / entries : 0;
}

}  // namespace

BlockFtl::BlockFtl(const BlockFtlConfig& config, BlockManager& blocks, BackingStore& store, MediaFaults* faults)
    : config_(config),
      geometry_(blocks.geometry()),
      page_size_(geometry_.page_size),
      codeword_(config.codeword.value == 0 ? page_size_ : config.codeword),
      by_page_(page_size_.value),
      blocks_(blocks),
      store_(store),
      faults_(faults),
      stripe_(geometry_, config.stripe_order),
      entries_per_page_(page_size_.value / kMapEntryBytes),
      exported_(exported_pages(config, blocks)),
      map_(geometry_, config.stripe_order, exported_ + translation_pages(config, exported_, entries_per_page_),
           config.units_per_program),
      collections_(geometry_.planes()) {
  if (config.map_cache_entries) cache_.emplace(*config.map_cache_entries, entries_per_page_, exported_);
  if (store_.carried()) page_image_.resize(page_size_.value);
  if (config.refresh_age.ps > 0) old_.resize(geometry_.planes());
}

std::vector<Phase> IoPlan::take_behind() {
  const auto first = phases.end() - static_cast<std::ptrdiff_t>(std::exchange(behind, 0));
  std::vector<Phase> taken(std::make_move_iterator(first), std::make_move_iterator(phases.end()));
  phases.erase(first, phases.end());
  return taken;
}

/// The errors of a read, where pages have some. False: they cannot be corrected.
bool BlockFtl::draw_errors(LogicalPage page, PhysicalPageAddress ppa, PageOp& read) {
  const BlockId block = blocks_.block_of(ppa);
  const ReadOutcome outcome = faults_->read(ppa, blocks_.erase_count(block), blocks_.count_read(block));
  read.retries = outcome.retries;
  stats_.read_retries += outcome.retries;
  if (!outcome.uncorrectable && !lost_.contains(page.value)) return true;
  ++stats_.uncorrectable_reads;
  return false;
}

/// Appends the read of `count` bytes from `first` on of a page, if it was written.
[[gnu::always_inline]] inline IoStatus BlockFtl::plan_page(LogicalPage page, std::uint64_t first, std::uint64_t count,
                                                           Phase& ops) {
  const PhysicalPageAddress ppa = map_.lookup(page);
  if (!ppa.valid()) {
    ++stats_.unwritten_reads;
    return IoStatus::ok;
  }
  ++stats_.host_pages_read;
  PageOp& read = ops.emplace_back();
  const bool correctable = plan_read(page, ppa, OpClass::host, read);
  if (codeword_ != page_size_) read.channel_bytes = read_bytes(first, count);
  return correctable ? IoStatus::ok : IoStatus::uncorrectable;
}

IoStatus BlockFtl::read(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops) {
  const LogicalPage page{by_page_.quotient(offset.value)};
  const std::uint64_t in_page = offset.value - page.value * page_size_.value;
  // Most reads are of one page. Length 0 is none.
  const bool one_page = length.value - 1 < page_size_.value - in_page;
  if (!one_page || store_.carried() || !in_range(offset, length)) return read_pages(offset, length, out, ops);
  return plan_page(page, in_page, length.value, ops);
}

IoStatus BlockFtl::read_pages(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops) {
  if (!in_range(offset, length)) return IoStatus::out_of_range;
  const bool carried = store_.carried();
  if (carried && out.size() != length.value) throw InternalError("read: buffer and length disagree");
  IoStatus status = IoStatus::ok;
  LogicalPage page{by_page_.quotient(offset.value)};
  std::uint64_t in_page = offset.value - page.value * page_size_.value;
  for (std::uint64_t done = 0; done < length.value; ++page.value, in_page = 0) {
    const std::uint64_t count = std::min(page_size_.value - in_page, length.value - done);
    if (plan_page(page, in_page, count, ops) != IoStatus::ok) status = IoStatus::uncorrectable;
    if (carried) {
      const PhysicalPageAddress ppa = map_.lookup(page);
      std::byte* to = out.data() + done;
      if (ppa.valid()) {
        std::memcpy(to, store_.read_verified(ppa, host_tag(page), config_.check).data() + in_page, count);
      } else {
        std::memset(to, 0, count);
      }
    }
    done += count;
  }
  return status;
}

IoPlan BlockFtl::find(Bytes offset, Bytes length) {
  IoPlan plan;
  if (!cache_ || !in_range(offset, length)) return plan;
  PlanBuilder builder(true, load_);
  plan.status = access_maps(offset, length, false, builder);
  plan.phases = builder.finish();
  return plan;
}

IoPlan BlockFtl::read(Bytes offset, Bytes length, std::span<std::byte> out) {
  IoPlan plan = find(offset, length);
  Phase ops;
  const IoStatus status = read_pages(offset, length, out, ops);
  if (plan.status == IoStatus::ok || status != IoStatus::ok) plan.status = status;
  if (!ops.empty()) plan.phases.push_back(std::move(ops));
  return plan;
}

/// Phases of map operations for the pages of a request, ahead of it. A drive that cannot write entries back any more
/// still reads: `change` says whether that matters.
IoStatus BlockFtl::access_maps(Bytes offset, Bytes length, bool change, PlanBuilder& plan) {
  if (!cache_ || length.value == 0) return IoStatus::ok;
  const std::uint64_t last = by_page_.quotient(offset.value + length.value - 1);
  for (std::uint64_t page = by_page_.quotient(offset.value); page <= last; ++page) {
    const IoStatus status = access_map(LogicalPage{page}, change, plan);
    if (status != IoStatus::ok && change) return status;
  }
  write_stale_translation_pages(plan);
  plan.barrier();
  return IoStatus::ok;
}

/// A page in `plane`, if there is room for it once garbage has been collected.
std::optional<PhysicalPageAddress> BlockFtl::place_in(PlaneId plane, Stream stream, PlanBuilder& plan) {
  for (;;) {
    if (stream == Stream::host) fill_from(plane, plan);
    if (blocks_.open_pages(plane, stream) == 0) {
      collect(plane, plan);
      // The last free block of a plane belongs to collection: without it nothing could be moved any more.
      if (blocks_.open_pages(plane, stream) == 0 && blocks_.available_blocks(plane, Namespace::block) <= 1) {
        return std::nullopt;
      }
    }
    plan.touch(plane);
    const PhysicalPageAddress ppa = blocks_.allocate(plane, stream).value();
    note_first_page(ppa);
    const OpClass op_class = stream == Stream::map ? OpClass::map : OpClass::host;
    if (plan.records()) plan.programs()->push_back(op(ppa, PageOpKind::program, op_class));
    owe(plane, plan);
    if (!program_failed(ppa)) return ppa;
  }
}

/// A page of `plane` was taken: the request that did so pays for collection.
void BlockFtl::owe(PlaneId plane, const PlanBuilder& plan) {
  if (in_steps(plan) && blocks_.available_blocks(plane, Namespace::block) <= config_.gc_free_blocks)
    owed_.push_back(plane);
}

/// The next unit of the request is in `plane`.
void BlockFtl::fill_from(PlaneId plane, const PlanBuilder& plan) {
  if (!config_.pads) return;
  if (filling_ && *filling_ != plane) pad(plan);
  filling_ = plane;
}

/// What a request has left of a word line stays empty.
void BlockFtl::pad(const PlanBuilder& plan) {
  if (!filling_) return;
  const PlaneId plane = *std::exchange(filling_, std::nullopt);
  while (blocks_.open_pages(plane, Stream::host) % config_.units_per_program != 0) {
    blocks_.invalidate(blocks_.allocate(plane, Stream::host).value());
    owe(plane, plan);
  }
}

/// The plane of the next page: the one that it shares a word line with, or the one with the least load.
void BlockFtl::choose_plane(std::uint32_t& cursor, Stream stream, PlanBuilder& plan) {
  PlaneLoad* const load = plan.load();
  if (load == nullptr) return;
  if (blocks_.open_pages(stripe_.plane_of_rank(cursor), stream) % config_.units_per_program != 0) return;
  cursor = load->least_from(cursor);
  plan.place(stripe_.plane_of_rank(cursor));
}

std::optional<PhysicalPageAddress> BlockFtl::place(LogicalPage page, Stream stream, PlanBuilder& plan) {
  if (config_.allocation == PageAllocation::fixed)
    return place_in(stripe_.plane_at(page.value / config_.units_per_program), stream, plan);
  std::uint32_t& cursor = stream == Stream::map ? map_cursor_ : cursor_;
  choose_plane(cursor, stream, plan);
  for (std::uint32_t tried = 0; tried < geometry_.planes(); ++tried) {
    const auto ppa = place_in(stripe_.plane_of_rank(cursor), stream, plan);
    // Units that follow one another share a word line.
    const bool open = ppa && (ppa->value + 1) % config_.units_per_program != 0;
    if (!open && ++cursor == geometry_.planes()) cursor = 0;
    if (ppa) return ppa;
  }
  return std::nullopt;
}

std::uint32_t BlockFtl::kept_bytes(std::uint64_t first, std::uint64_t count) const {
  const std::uint64_t size = codeword_.value, begin = (first + size - 1) / size, end = (first + count) / size;
  return static_cast<std::uint32_t>(page_size_.value - (begin < end ? (end - begin) * size : 0));
}

/// The read of what stays of a page of which `count` bytes from `first` on are written. False: it cannot be corrected.
bool BlockFtl::read_rest(LogicalPage page, PhysicalPageAddress ppa, std::uint64_t first, std::uint64_t count,
                         PageOp& read) {
  const bool corrected = plan_read(page, ppa, OpClass::host, read);
  read.channel_bytes = kept_bytes(first, count);
  ++stats_.merge_reads;
  return corrected;
}

KeptPages BlockFtl::keep(Bytes offset, Bytes length) {
  KeptPages kept;
  if (cache_ || length.value == 0 || !in_range(offset, length)) return kept;
  const std::uint64_t end = offset.value + length.value, last = by_page_.quotient(end - 1);
  const auto keep_page = [&](LogicalPage page) {
    const std::uint64_t at = page.value * page_size_.value;
    const std::uint64_t first = std::max(at, offset.value) - at,
                        count = std::min(at + page_size_.value, end) - at - first;
    const PhysicalPageAddress ppa = map_.lookup(page);
    if (count == page_size_.value || !ppa.valid() || is_held(ppa)) return;
    const bool corrected = read_rest(page, ppa, first, count, kept.reads.emplace_back());
    kept.pages.push_back({page, ppa, corrected});
  };
  const LogicalPage first{by_page_.quotient(offset.value)};
  keep_page(first);
  if (last != first.value) keep_page(LogicalPage{last});
  return kept;
}

/// Brings the rest of a page of which `count` bytes from `first` on are written. False: it cannot be corrected.
bool BlockFtl::merge(LogicalPage page, std::uint64_t first, std::uint64_t count, std::span<const std::byte> data,
                     const KeptPages* kept, PlanBuilder& plan) {
  const PhysicalPageAddress old = map_.lookup(page);
  const KeptPages::Page* known = nullptr;
  if (kept != nullptr)
    for (const KeptPages::Page& read : kept->pages)
      if (read.page == page && read.ppa == old) known = &read;
  if (known != nullptr) {
    if (!known->corrected) return false;
  } else if (old.valid()) {
    PageOp read;
    const bool corrected = read_rest(page, old, first, count, read);
    plan.read(read);
    plan.touch(blocks_.plane_of(old));
    if (!corrected) return false;
  }
  if (!store_.carried()) return true;
  if (old.valid()) {
    std::ranges::copy(store_.read_verified(old, host_tag(page), config_.check), page_image_.begin());
  } else {
    std::ranges::fill(page_image_, std::byte{0});
  }
  std::ranges::copy(data, page_image_.begin() + static_cast<std::ptrdiff_t>(first));
  return true;
}

/// Writes into a page whose program has not begun: its place stays.
void BlockFtl::change_held_page(LogicalPage page, std::uint64_t first, std::span<const std::byte> data) {
  ++stats_.coalesced_pages;
  if (!store_.carried()) return;
  const PhysicalPageAddress ppa = map_.lookup(page);
  std::ranges::copy(store_.read_verified(ppa, host_tag(page), config_.check), page_image_.begin());
  std::ranges::copy(data, page_image_.begin() + static_cast<std::ptrdiff_t>(first));
  store_.replace(ppa, page_image_, host_tag(page));
}

IoStatus BlockFtl::write_page(LogicalPage page, std::uint64_t first, std::uint64_t count,
                              std::span<const std::byte> bytes, const KeptPages* kept, PlanBuilder& plan) {
  if (held_ && is_held(map_.lookup(page))) {
    change_held_page(page, first, bytes);
    return IoStatus::ok;
  }
  const std::optional<PhysicalPageAddress> to = place(page, Stream::host, plan);
  if (!to) return read_only() ? IoStatus::read_only : IoStatus::out_of_space;
  if (count != page_size_.value) {
    if (!merge(page, first, count, bytes, kept, plan)) {
      blocks_.invalidate(*to);
      return IoStatus::uncorrectable;
    }
    if (store_.carried()) bytes = page_image_;
  }
  store_.write(*to, bytes, host_tag(page));
  invalidate(map_.bind(page, *to));
  if (!lost_.empty()) lost_.erase(page.value);
  ++stats_.host_pages_written;
  if (!failed_.empty()) empty_failed_blocks(plan);
  if (!stale_.empty()) write_stale_translation_pages(plan);
  return IoStatus::ok;
}

IoPlan BlockFtl::write(Bytes offset, Bytes length, std::span<const std::byte> data, const KeptPages* kept) {
  if (!in_range(offset, length)) return {IoStatus::out_of_range, {}};
  if (store_.carried() && data.size() != length.value) throw InternalError("write: buffer and length disagree");
  if (read_only()) return {IoStatus::read_only, {}};
  PlanBuilder builder(true, load_);
  IoPlan plan;
  plan.status = access_maps(offset, length, true, builder);
  LogicalPage page{by_page_.quotient(offset.value)};
  std::uint64_t in_page = offset.value - page.value * page_size_.value;
  for (std::uint64_t done = 0; done < length.value && plan.status == IoStatus::ok; ++page.value, in_page = 0) {
    const std::uint64_t count = std::min(page_size_.value - in_page, length.value - done);
    plan.status = write_page(page, in_page, count, store_.carried() ? data.subspan(done, count) : data, kept, builder);
    done += count;
  }
  pad(builder);
  plan.phases = builder.finish();
  if (!owed_.empty()) pay(plan);
  return plan;
}

IoPlan BlockFtl::trim(Bytes offset, Bytes length) {
  if (!in_range(offset, length)) return {IoStatus::out_of_range, {}};
  if (read_only()) return {IoStatus::read_only, {}};
  const std::uint64_t first = (offset.value + page_size_.value - 1) / page_size_.value;
  const std::uint64_t last = (offset.value + length.value) / page_size_.value;
  PlanBuilder builder(true, load_);
  IoPlan plan;
  if (first < last) plan.status = access_maps(page_size_ * first, page_size_ * (last - first), true, builder);
  plan.phases = builder.finish();
  for (std::uint64_t page = first; page < last && plan.status == IoStatus::ok; ++page) {
    if (!map_.lookup(LogicalPage{page}).valid()) continue;
    invalidate(map_.unbind(LogicalPage{page}));
    if (!lost_.empty()) lost_.erase(page);
    ++stats_.trimmed_pages;
  }
  return plan;
}

}  // namespace csdsim::ftl
