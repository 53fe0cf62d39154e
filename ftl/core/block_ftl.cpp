#include "ftl/core/block_ftl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace csdsim::ftl {
namespace {

/// Blocks a plane that can never hold exported data: the two open blocks, and one that collection always finds free.
constexpr std::uint32_t kReservedBlocks = 3;

OobTag host_tag(LogicalPage page) {
  OobTag tag;
  tag.index = page.value;
  return tag;
}

std::uint64_t exported_pages(const BlockFtlConfig& config, const BlockManager& blocks) {
  const FlashGeometry& g = blocks.geometry();
  const std::uint32_t quota = blocks.quota(Namespace::block);
  if (!(config.over_provisioning >= 0 && config.over_provisioning < 1)) {
    throw UserError(fmt::format("over_provisioning is {}, it must be in [0, 1)", config.over_provisioning));
  }
  if (config.gc_free_blocks < 1) throw UserError("gc_free_blocks is 0, it must be at least 1");
  if (quota <= kReservedBlocks + config.gc_free_blocks) {
    throw UserError(fmt::format("the block namespace has {} blocks a plane, garbage collection needs more than {}",
                                quota, kReservedBlocks + config.gc_free_blocks));
  }
  const std::uint64_t per_plane_cap = std::uint64_t{quota - kReservedBlocks} * g.pages_per_block;
  const double raw = static_cast<double>(std::uint64_t{quota} * g.pages_per_block * g.planes());
  return std::min(static_cast<std::uint64_t>(raw * (1 - config.over_provisioning)), per_plane_cap * g.planes());
}

}  // namespace

/// Collects the operations of one request. A plane's collection must precede what the request itself does there: when
/// it comes up afterwards, a new segment starts, behind everything so far.
class BlockFtl::PlanBuilder {
 public:
  void touch(PlaneId plane) { touched_.push_back(plane); }

  /// Collections of different planes run side by side; `phases` of one plane stay in order.
  void collect(PlaneId plane, std::vector<Phase> phases) {
    if (std::find(touched_.begin(), touched_.end(), plane) != touched_.end()) close_segment();
    touch(plane);
    if (collection_.size() < phases.size()) collection_.resize(phases.size());
    for (std::size_t i = 0; i < phases.size(); ++i) {
      collection_[i].insert(collection_[i].end(), phases[i].begin(), phases[i].end());
    }
  }

  Phase reads;
  Phase programs;

  std::vector<Phase> finish() {
    close_segment();
    return std::move(done_);
  }

 private:
  void close_segment() {
    for (Phase& phase : collection_) push(std::move(phase));
    push(std::move(reads));
    push(std::move(programs));
    collection_.clear();
    reads.clear();
    programs.clear();
    touched_.clear();
  }
  void push(Phase phase) {
    if (!phase.empty()) done_.push_back(std::move(phase));
  }

  std::vector<PlaneId> touched_;
  std::vector<Phase> collection_;
  std::vector<Phase> done_;
};

BlockFtl::BlockFtl(const BlockFtlConfig& config, BlockManager& blocks, BackingStore& store)
    : config_(config),
      geometry_(blocks.geometry()),
      page_size_(geometry_.page_size),
      blocks_(blocks),
      store_(store),
      stripe_(geometry_, config.stripe_order),
      map_(geometry_, config.stripe_order, exported_pages(config, blocks)) {
  if (store_.carried()) page_image_.resize(page_size_.value);
}

bool BlockFtl::in_range(Bytes offset, Bytes length) const {
  return offset <= capacity() && length <= capacity() - offset;
}

PageOp BlockFtl::op(PhysicalPageAddress ppa, PageOpKind kind, OpClass op_class) const {
  return {
      .ppa = ppa, .kind = kind, .op_class = op_class, .channel_bytes = kind == PageOpKind::erase ? 0 : page_bytes()};
}

IoStatus BlockFtl::read(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops) {
  if (!in_range(offset, length)) return IoStatus::out_of_range;
  if (store_.carried() && out.size() != length.value) throw InternalError("read: buffer and length disagree");
  const std::uint64_t end = offset.value + length.value;
  for (std::uint64_t at = offset.value; at < end;) {
    const LogicalPage page{at / page_size_.value};
    const std::uint64_t in_page = at % page_size_.value;
    const std::uint64_t count = std::min(page_size_.value - in_page, end - at);
    const PhysicalPageAddress ppa = map_.lookup(page);
    if (ppa.valid()) {
      ops.push_back(op(ppa, PageOpKind::read, OpClass::host));
      ++stats_.host_pages_read;
    } else {
      ++stats_.unwritten_reads;
    }
    if (store_.carried()) {
      std::byte* to = out.data() + (at - offset.value);
      if (ppa.valid()) {
        std::memcpy(to, store_.read_verified(ppa, host_tag(page), config_.check).data() + in_page, count);
      } else {
        std::memset(to, 0, count);
      }
    }
    at += count;
  }
  return IoStatus::ok;
}

IoPlan BlockFtl::read(Bytes offset, Bytes length, std::span<std::byte> out) {
  Phase ops;
  const IoStatus status = read(offset, length, out, ops);
  IoPlan plan{status, {}};
  if (!ops.empty()) plan.phases.push_back(std::move(ops));
  return plan;
}

void BlockFtl::invalidate(PhysicalPageAddress old) {
  if (old.valid()) blocks_.invalidate(old);
}

void BlockFtl::relocate(BlockId victim, std::vector<Phase>& phases) {
  Phase reads;
  Phase programs;
  const std::uint64_t first = std::uint64_t{victim.value} * geometry_.pages_per_block;
  const PlaneId plane = geometry_.plane_of({first});
  for (std::uint32_t i = 0; i < geometry_.pages_per_block && blocks_.valid_pages(victim) > 0; ++i) {
    const PhysicalPageAddress from{first + i};
    const std::optional<LogicalPage> page = map_.owner(from);
    if (!page) continue;
    const PhysicalPageAddress to = blocks_.allocate(plane, Stream::gc).value();
    if (store_.carried()) {
      store_.write(to, store_.read_verified(from, host_tag(*page), config_.check), host_tag(*page));
    }
    map_.bind(*page, to);
    blocks_.invalidate(from);
    reads.push_back(op(from, PageOpKind::read, OpClass::gc));
    programs.push_back(op(to, PageOpKind::program, OpClass::gc));
  }
  stats_.gc_pages_moved += reads.size();
  ++stats_.gc_erases;
  blocks_.begin_erase(victim);
  // The erase precedes every later program of this block in the plan, so the block may be reused in the state at once.
  blocks_.finish_erase(victim);
  store_.erase(victim);
  phases.push_back(std::move(reads));
  phases.push_back(std::move(programs));
  phases.push_back({op({first}, PageOpKind::erase, OpClass::gc)});
}

void BlockFtl::collect(PlaneId plane, PlanBuilder& plan) {
  std::vector<Phase> phases;
  while (blocks_.available_blocks(plane, Namespace::block) <= config_.gc_free_blocks) {
    const std::optional<BlockId> victim = blocks_.victim(plane, Namespace::block);
    if (!victim) break;
    const std::uint32_t spare = blocks_.available_blocks(plane, Namespace::block) > 0 ? geometry_.pages_per_block : 0;
    if (blocks_.valid_pages(*victim) > blocks_.open_pages(plane, Stream::gc) + spare) break;
    relocate(*victim, phases);
  }
  if (!phases.empty()) plan.collect(plane, std::move(phases));
}

std::optional<PhysicalPageAddress> BlockFtl::place(PlanBuilder& plan) {
  for (std::uint32_t tried = 0; tried < geometry_.planes(); ++tried) {
    const PlaneId plane = stripe_.plane_at(cursor_++);
    if (blocks_.open_pages(plane, Stream::host) == 0) {
      collect(plane, plan);
      // The last free block of a plane belongs to collection: without it nothing could be moved any more.
      if (blocks_.available_blocks(plane, Namespace::block) <= 1) continue;
    }
    plan.touch(plane);
    return blocks_.allocate(plane, Stream::host);
  }
  return std::nullopt;
}

void BlockFtl::merge(LogicalPage page, std::uint64_t first, std::span<const std::byte> data, PlanBuilder& plan) {
  const PhysicalPageAddress old = map_.lookup(page);
  if (old.valid()) {
    plan.reads.push_back(op(old, PageOpKind::read, OpClass::host));
    plan.touch(geometry_.plane_of(old));
    ++stats_.merge_reads;
  }
  if (!store_.carried()) return;
  if (old.valid()) {
    std::ranges::copy(store_.read_verified(old, host_tag(page), config_.check), page_image_.begin());
  } else {
    std::ranges::fill(page_image_, std::byte{0});
  }
  std::ranges::copy(data, page_image_.begin() + static_cast<std::ptrdiff_t>(first));
}

IoPlan BlockFtl::write(Bytes offset, Bytes length, std::span<const std::byte> data) {
  if (!in_range(offset, length)) return {IoStatus::out_of_range, {}};
  if (store_.carried() && data.size() != length.value) throw InternalError("write: buffer and length disagree");
  PlanBuilder builder;
  IoPlan plan;
  const std::uint64_t end = offset.value + length.value;
  for (std::uint64_t at = offset.value; at < end;) {
    const LogicalPage page{at / page_size_.value};
    const std::uint64_t in_page = at % page_size_.value;
    const std::uint64_t count = std::min(page_size_.value - in_page, end - at);
    const std::optional<PhysicalPageAddress> to = place(builder);
    if (!to) {
      plan.status = IoStatus::out_of_space;
      break;
    }
    std::span<const std::byte> bytes;
    if (store_.carried()) bytes = data.subspan(at - offset.value, count);
    if (count != page_size_.value) {
      merge(page, in_page, bytes, builder);
      if (store_.carried()) bytes = page_image_;
    }
    store_.write(*to, bytes, host_tag(page));
    invalidate(map_.bind(page, *to));
    builder.programs.push_back(op(*to, PageOpKind::program, OpClass::host));
    ++stats_.host_pages_written;
    at += count;
  }
  plan.phases = builder.finish();
  return plan;
}

IoPlan BlockFtl::trim(Bytes offset, Bytes length) {
  if (!in_range(offset, length)) return {IoStatus::out_of_range, {}};
  const std::uint64_t first = (offset.value + page_size_.value - 1) / page_size_.value;
  const std::uint64_t last = (offset.value + length.value) / page_size_.value;
  for (std::uint64_t page = first; page < last; ++page) {
    if (map_.lookup(LogicalPage{page}).valid()) invalidate(map_.unbind(LogicalPage{page}));
  }
  return {};
}

void BlockFtl::precondition(Bytes working_set, std::optional<std::uint64_t> seed) {
  if (store_.carried()) throw UserError("preconditioning needs simulation.data: timing, it writes no bytes");
  if (working_set > capacity()) {
    throw UserError(fmt::format("a working set of {} bytes is larger than the block namespace, {} bytes",
                                working_set.value, capacity().value));
  }
  const std::uint64_t pages = (working_set.value + page_size_.value - 1) / page_size_.value;
  for (std::uint32_t plane = 0; plane < geometry_.planes(); ++plane) {
    if (!blocks_.pristine(PlaneId{plane})) throw UserError("only an untouched drive can be preconditioned");
  }
  map_.precondition(pages, seed);
  for (std::uint32_t rank = 0; rank < geometry_.planes(); ++rank) {
    const std::uint64_t share = pages / geometry_.planes() + (rank < pages % geometry_.planes() ? 1 : 0);
    blocks_.fill(stripe_.plane_at(rank), Stream::host, share);
  }
  cursor_ = pages % geometry_.planes();
}

}  // namespace csdsim::ftl
