#include "ftl/core/block_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/statistics.h"
#include "ftl/core/factory_bad_blocks.h"

namespace csdsim::ftl {
namespace {

const FlashGeometry& checked(const FlashGeometry& geometry, const BlockQuota& quota, const BlockManagerConfig& config) {
  if (geometry.blocks() > std::numeric_limits<std::uint32_t>::max()) {
    throw UserError(fmt::format("the flash has {} erase blocks, more than {}", geometry.blocks(),
                                std::numeric_limits<std::uint32_t>::max()));
  }
  if (std::uint64_t{quota.block_namespace} + quota.kv_namespace + config.spare_blocks > geometry.blocks_per_plane) {
    throw UserError(fmt::format("the namespaces want {} + {} blocks a plane and {} spare ones, the flash has {}",
                                quota.block_namespace, quota.kv_namespace, config.spare_blocks,
                                geometry.blocks_per_plane));
  }
  if (config.handles < 1 || config.handles > kMostHandles)
    throw UserError(fmt::format("{} placement handles, a drive has 1 to {}", config.handles, kMostHandles));
  return geometry;
}

InternalError bad_state(BlockId block, std::string_view what) {
  return InternalError(fmt::format("block {} {}", block.value, what));
}

}  // namespace

BlockManager::BlockManager(const FlashGeometry& geometry, const BlockQuota& quota, const BlockManagerConfig& config)
    : geometry_(checked(geometry, quota, config)),
      config_(config),
      by_block_(geometry.pages_per_block),
      by_plane_(geometry.pages_per_plane()),
      words_((geometry.pages_per_block + kWordBits - 1) / kWordBits),
      streams_(kStreams + 2 * std::size_t{config.handles - 1}),
      blocks_(geometry.blocks()),
      stale_(geometry.blocks()),
      stale_memory_(words_ * sizeof(std::uint64_t), geometry.blocks()),
      none_stale_(words_),
      victims_(config.gc, geometry.blocks(), geometry.pages_per_block,
               geometry.planes() * static_cast<std::uint32_t>(kNamespaces)) {
  quota_ = {quota.block_namespace, quota.kv_namespace};
  for (std::size_t ns = 0; ns < kNamespaces; ++ns) {
    available_pages_[ns] = std::uint64_t{geometry.planes()} * quota_[ns] * geometry.pages_per_block;
  }
  planes_.resize(geometry.planes());
  open_.assign(planes_.size() * streams_, kNone);
  if (config.factory_bad_blocks > 0) draw_factory_bad_blocks();
}

void BlockManager::draw_factory_bad_blocks() {
  for (std::uint32_t b = 0; b < geometry_.blocks(); ++b) {
    if (!bad_from_factory(config_.factory_bad_blocks, config_.seed, b)) continue;
    blocks_[b].state = BlockState::bad;
    ++planes_[plane_of(BlockId{b}).value].spares_used;
    ++factory_bad_;
  }
  std::vector<std::uint32_t> bad;
  for (const Plane& plane : planes_) bad.push_back(plane.spares_used);
  require_spare_blocks(bad, config_.spare_blocks);
}

std::uint32_t BlockManager::open_pages(PlaneId plane, Stream stream) const {
  const std::uint32_t block = open_of(plane, stream);
  return block == kNone ? 0 : geometry_.pages_per_block - blocks_[block_id(plane, block).value].written;
}

std::optional<BlockId> BlockManager::open_block(PlaneId plane, Stream stream) const {
  const std::uint32_t block = open_of(plane, stream);
  if (block == kNone) return std::nullopt;
  return block_id(plane, block);
}

std::uint32_t BlockManager::take_free_block(Plane& p, PlaneId plane, Stream stream) {
  const auto erases = [&](std::uint32_t block) { return blocks_[block_id(plane, block).value].erases; };
  const bool most_worn = (stream == Stream::cold || stream == Stream::kv_cold) && !p.recycled.empty();
  while (p.fresh < geometry_.blocks_per_plane && blocks_[block_id(plane, p.fresh).value].state == BlockState::bad) {
    ++p.fresh;
  }
  if (p.fresh < geometry_.blocks_per_plane && !most_worn) return p.fresh++;
  auto choice = p.recycled.begin();
  if (most_worn) {
    choice = std::ranges::max_element(p.recycled, {}, erases);
  } else if (config_.free_block == FreeBlockChoice::least_worn) {
    choice = std::ranges::min_element(p.recycled, {}, erases);
  }
  const std::uint32_t block = *choice;
  p.recycled.erase(choice);
  return block;
}

std::optional<std::uint32_t> BlockManager::open_free_block(PlaneId plane, Stream stream) {
  const Namespace ns = namespace_of(stream);
  if (available_blocks(plane, ns) == 0) return std::nullopt;
  Plane& p = planes_[plane.value];
  // Quotas and spare blocks sum up to at most the plane, so a namespace below its quota always finds a block.
  const std::uint32_t block = take_free_block(p, plane, stream);
  ++p.used[index(ns)];
  ++p.opened;
  Block& b = blocks_[block_id(plane, block).value];
  b.state = BlockState::open;
  b.ns = ns;
  b.stream = stream;
  return block;
}

std::uint32_t BlockManager::open_or_take(PlaneId plane, Stream stream) {
  std::uint32_t& block = open_of(plane, stream);
  if (block == kNone) block = open_free_block(plane, stream).value_or(kNone);
  return block;
}

/// True if the block was full and is closed now.
bool BlockManager::close_if_full(BlockId block) {
  Block& b = blocks_[block.value];
  if (b.written < geometry_.pages_per_block) return false;
  b.state = BlockState::full;
  victims_.add(group(plane_of(block), b.ns), block, b.valid, clock_);
  return true;
}

PhysicalPageAddress BlockManager::hand_out(BlockId block) {
  Block& b = blocks_[block.value];
  const std::uint32_t page = b.written++;
  ++b.valid;
  ++valid_pages_[index(b.ns)];
  ++clock_;
  --available_pages_[index(b.ns)];
  return {first_page(block).value + page};
}

PhysicalPageAddress BlockManager::take_page(PlaneId plane, Stream stream) {
  const std::uint32_t in_plane = open_or_take(plane, stream);
  if (in_plane == kNone) return PhysicalPageAddress::invalid();
  const BlockId block = block_id(plane, in_plane);
  const PhysicalPageAddress ppa = hand_out(block);
  if (close_if_full(block)) open_of(plane, stream) = kNone;
  return ppa;
}

BlockManager::PageRun BlockManager::allocate_run(PlaneId plane, Stream stream, std::uint32_t most) {
  const std::optional<BlockId> block = open_block(plane, stream);
  if (!block || most == 0) return {};
  const std::uint32_t written = written_pages(*block);
  const PageRun run{{first_page(*block).value + written}, std::min(most, geometry_.pages_per_block - written)};
  append(*block, run.count);
  if (close_if_full(*block)) open_of(plane, stream) = kNone;
  return run;
}

/// The next `count` pages of an open block.
void BlockManager::append(BlockId block, std::uint32_t count) {
  Block& b = blocks_[block.value];
  b.written += count;
  b.valid += count;
  valid_pages_[index(b.ns)] += count;
  clock_ += count;
  available_pages_[index(b.ns)] -= count;
}

std::optional<BlockId> BlockManager::open(PlaneId plane, Namespace ns) {
  const auto block = open_free_block(plane, ns == Namespace::kv ? Stream::kv : Stream::host);
  if (!block) return std::nullopt;
  return block_id(plane, *block);
}

PhysicalPageAddress BlockManager::next_page(BlockId block) {
  if (state(block) != BlockState::open) throw bad_state(block, "is to be written but is not open");
  const PhysicalPageAddress ppa = hand_out(block);
  close_if_full(block);
  return ppa;
}

/// Fills whole blocks that were never used, as many as up to `pages` pages take. Returns their pages.
std::uint64_t BlockManager::fill_fresh(PlaneId plane, Stream stream, std::uint64_t pages) {
  Plane& p = planes_[plane.value];
  if (has_factory_bad_blocks() || !p.recycled.empty() || open_of(plane, stream) != kNone) return 0;
  const Namespace ns = namespace_of(stream);
  const std::uint32_t most = std::min(available_blocks(plane, ns), geometry_.blocks_per_plane - p.fresh);
  const std::uint32_t size = geometry_.pages_per_block;
  const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages / size, most));
  const BlockId first = block_id(plane, p.fresh);
  const Block full{
      .written = size, .valid = size, .erases = 0, .reads = 0, .state = BlockState::full, .ns = ns, .stream = stream};
  std::fill_n(&blocks_[first.value], count, full);
  victims_.add_valid(group(plane, ns), first, count);
  p.fresh += count;
  p.opened += count;
  p.used[index(ns)] += count;
  const std::uint64_t filled = std::uint64_t{count} * size;
  valid_pages_[index(ns)] += filled;
  available_pages_[index(ns)] -= filled;
  clock_ += filled;
  return filled;
}

void BlockManager::fill(PlaneId plane, Stream stream, std::uint64_t pages) {
  while (pages > 0) {
    pages -= fill_fresh(plane, stream, pages);
    if (pages == 0) return;
    const std::uint32_t block = open_or_take(plane, stream);
    if (block == kNone) throw InternalError(fmt::format("plane {} cannot hold {} more pages", plane.value, pages));
    const BlockId id = block_id(plane, block);
    const std::uint32_t left = geometry_.pages_per_block - written_pages(id);
    const auto take = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages, left));
    append(id, take);
    if (close_if_full(id)) open_of(plane, stream) = kNone;
    pages -= take;
  }
}

bool BlockManager::valid(PhysicalPageAddress ppa) const {
  const BlockId block = block_of(ppa);
  const std::uint64_t page = ppa.value - first_page(block).value;
  if (page >= written_pages(block)) return false;
  return (stale_bits(block)[page / kWordBits] >> (page % kWordBits) & 1) == 0;
}

std::optional<std::uint32_t> BlockManager::next_valid(BlockId block, std::uint32_t from) const {
  const std::uint32_t written = written_pages(block);
  const std::uint64_t* stale = stale_bits(block);
  while (from < written) {
    const std::uint32_t bit = from % kWordBits;
    const auto ones = static_cast<std::uint32_t>(std::countr_one(stale[from / kWordBits] >> bit));
    from += std::min(ones, kWordBits - bit);
    if (ones < kWordBits - bit) break;
  }
  if (from >= written) return std::nullopt;
  return from;
}

std::uint32_t BlockManager::valid_run(BlockId block, std::uint32_t from, std::uint32_t most) const {
  const std::uint64_t* stale = stale_bits(block);
  const std::uint32_t written = written_pages(block);
  most = std::min(most, written - std::min(written, from));
  std::uint32_t count = 0;
  while (count < most) {
    const std::uint32_t bit = (from + count) % kWordBits;
    const auto zeros = static_cast<std::uint32_t>(std::countr_zero(stale[(from + count) / kWordBits] >> bit));
    count += std::min(zeros, kWordBits - bit);
    if (zeros < kWordBits - bit) break;
  }
  return std::min(count, most);
}

bool BlockManager::invalidate_run(PhysicalPageAddress first, std::uint32_t count, std::uint64_t later) {
  const BlockId block = block_of(first);
  Block& b = blocks_[block.value];
  const std::uint64_t page = first.value - first_page(block).value;
  if (page + count > b.written) throw bad_state(block, "has no page that is to be invalidated");
  for (std::uint64_t at = page; at < page + count;) {
    const std::uint64_t bit = at % kWordBits, take = std::min<std::uint64_t>(kWordBits - bit, page + count - at);
    const std::uint64_t mask = (~std::uint64_t{0} >> (kWordBits - take)) << bit;
    std::uint64_t& word = stale_bits(block)[at / kWordBits];
    if ((word & mask) != 0) throw bad_state(block, "has a page that is invalidated twice");
    word |= mask;
    at += take;
  }
  b.valid -= count;
  valid_pages_[index(b.ns)] -= count;
  if (b.state == BlockState::full) victims_.lose_pages(group(plane_of(first), b.ns), block, count, clock_ - later);
  if (b.state == BlockState::retired && b.valid == 0) b.state = BlockState::bad;
  return b.valid == 0 && (b.state == BlockState::full || b.state == BlockState::collecting);
}

bool BlockManager::invalidate(PhysicalPageAddress ppa) {
  if (!geometry_.contains(ppa)) throw InternalError(fmt::format("physical page {} does not exist", ppa.value));
  return invalidate_run(ppa, 1);
}

/// No stream appends to the block any more.
void BlockManager::drop_open(PlaneId plane, BlockId block) {
  const Block& b = blocks_[block.value];
  // A block that open() has returned is that of no stream.
  std::uint32_t& of_stream = open_of(plane, b.stream);
  if (of_stream != kNone && block_id(plane, of_stream) == block) of_stream = kNone;
  available_pages_[index(b.ns)] -= geometry_.pages_per_block - b.written;
}

void BlockManager::close(BlockId block) {
  Block& b = blocks_[block.value];
  const PlaneId plane = plane_of(block);
  if (b.state != BlockState::open) throw bad_state(block, "is to be closed but is not open");
  drop_open(plane, block);
  b.state = BlockState::full;
  victims_.add(group(plane, b.ns), block, b.valid, clock_);
}

void BlockManager::begin_collect(BlockId block) {
  Block& b = blocks_[block.value];
  if (b.state != BlockState::full) throw bad_state(block, "is to be collected but is not full");
  victims_.remove(group(plane_of(block), b.ns), block);
  b.state = BlockState::collecting;
}

void BlockManager::begin_erase(BlockId block) {
  Block& b = blocks_[block.value];
  if (b.valid != 0 || (b.state != BlockState::full && b.state != BlockState::collecting)) {
    throw bad_state(block, fmt::format("is to be erased with {} valid pages, or is not full", b.valid));
  }
  if (b.state == BlockState::full) victims_.remove(group(plane_of(block), b.ns), block);
  b.state = BlockState::erasing;
  erasing_pages_[index(b.ns)] += geometry_.pages_per_block;
}

void BlockManager::finish_erase(BlockId block) {
  Block& b = blocks_[block.value];
  if (b.state != BlockState::erasing) throw bad_state(block, "finished an erase that it had not begun");
  Plane& p = planes_[plane_of(block).value];
  p.recycled.push_back(block.value % geometry_.blocks_per_plane);
  --p.used[index(b.ns)];
  erasing_pages_[index(b.ns)] -= geometry_.pages_per_block;
  available_pages_[index(b.ns)] += geometry_.pages_per_block;
  b.state = BlockState::free;
  if (stale_[block.value] != nullptr) std::fill_n(stale_[block.value], words_, std::uint64_t{0});
  b.written = 0;
  b.reads = 0;
  ++b.erases;
  erased_ = true;
  p.most_erases = std::max(p.most_erases, b.erases);
}

/// The block does not count against its namespace any more. A spare block replaces it, or the namespace loses it.
void BlockManager::leave_service(BlockId block) {
  const Block& b = blocks_[block.value];
  Plane& p = planes_[plane_of(block).value];
  --p.used[index(b.ns)];
  ++grown_bad_;
  if (p.spares_used < config_.spare_blocks) {
    ++p.spares_used;
    available_pages_[index(b.ns)] += geometry_.pages_per_block;
  } else {
    ++p.lost[index(b.ns)];
    read_only_ = true;
  }
}

void BlockManager::fail_erase(BlockId block) {
  Block& b = blocks_[block.value];
  if (b.state != BlockState::erasing) throw bad_state(block, "failed an erase that it had not begun");
  erasing_pages_[index(b.ns)] -= geometry_.pages_per_block;
  b.state = BlockState::bad;
  leave_service(block);
}

void BlockManager::retire(BlockId block) {
  Block& b = blocks_[block.value];
  const PlaneId plane = plane_of(block);
  if (b.state == BlockState::open) {
    drop_open(plane, block);
  } else if (b.state == BlockState::full) {
    victims_.remove(group(plane, b.ns), block);
  } else if (b.state != BlockState::collecting) {
    throw bad_state(block, "is to be retired but holds nothing");
  }
  b.state = b.valid == 0 ? BlockState::bad : BlockState::retired;
  leave_service(block);
}

std::optional<BlockId> BlockManager::victim(PlaneId plane, Namespace ns) {
  return victims_.choose(group(plane, ns), clock_);
}

std::optional<BlockId> BlockManager::least_worn(PlaneId plane, Namespace ns) const {
  std::optional<BlockId> best;
  for (std::uint32_t i = 0; i < geometry_.blocks_per_plane; ++i) {
    const BlockId block = block_id(plane, i);
    const Block& b = blocks_[block.value];
    if (b.state != BlockState::full || b.ns != ns) continue;
    if (!best || b.erases < blocks_[best->value].erases) best = block;
  }
  return best;
}

std::uint64_t BlockManager::total_pages(Namespace ns) const {
  std::uint64_t blocks = std::uint64_t{quota_[index(ns)]} * geometry_.planes();
  if (read_only_) {
    for (const Plane& p : planes_) blocks -= p.lost[index(ns)];
  }
  return blocks * geometry_.pages_per_block;
}

WearStatistics BlockManager::wear() const {
  if (!erased_) return {};
  WearStatistics wear{.min = kNone};
  double squares = 0;
  std::uint64_t sum = 0;
  std::uint64_t count = 0;
  for (const Block& b : blocks_) {
    if (b.state == BlockState::bad || b.state == BlockState::retired) continue;
    wear.min = std::min(wear.min, b.erases);
    wear.max = std::max(wear.max, b.erases);
    sum += b.erases;
    squares += double(b.erases) * b.erases;
    ++count;
  }
  if (count == 0) return {};
  wear.mean = static_cast<double>(sum) / static_cast<double>(count);
  wear.deviation = std::sqrt(std::max(0.0, squares / static_cast<double>(count) - wear.mean * wear.mean));
  return wear;
}

std::vector<BlockRecord> BlockManager::records() const {
  std::vector<BlockRecord> records;
  for (std::uint32_t p = 0; p < geometry_.planes(); ++p) {
    const Plane& plane = planes_[p];
    const auto add = [&](std::uint32_t block) {
      const BlockId id = block_id(PlaneId{p}, block);
      const Block& b = blocks_[id.value];
      records.push_back({id, b.erases, b.written, b.state, b.ns, b.stream});
    };
    for (const std::uint32_t block : plane.recycled) add(block);
    for (std::uint32_t block = 0; block < plane.fresh; ++block) {
      const Block& b = blocks_[block_id(PlaneId{p}, block).value];
      const bool from_the_factory = b.state == BlockState::bad && b.written == 0;
      if (b.state != BlockState::free && !from_the_factory) add(block);
    }
  }
  return records;
}

void BlockManager::restore(const BlockRecord& record, std::span<const PhysicalPageAddress> valid) {
  const BlockId id = record.block;
  Block& b = blocks_[id.value];
  if (b.state != BlockState::free || b.written > 0 || b.erases > 0)
    throw InternalError(fmt::format("block {} is restored but in use", id.value));
  Plane& p = planes_[plane_of(id).value];
  const std::uint32_t in_plane = id.value % geometry_.blocks_per_plane;
  p.fresh = std::max(p.fresh, in_plane + 1);
  ++p.opened;
  p.most_erases = std::max(p.most_erases, record.erases);
  b.erases = record.erases;
  erased_ = erased_ || record.erases > 0;
  b.ns = record.ns;
  b.stream = record.stream;
  if (record.state == BlockState::free) {
    p.recycled.push_back(in_plane);
    return;
  }
  b.written = record.written;
  b.valid = static_cast<std::uint32_t>(valid.size());
  clock_ += b.written;
  std::size_t kept = 0;
  for (std::uint32_t page = 0; page < b.written; ++page) {
    if (kept < valid.size() && valid[kept].value == first_page(id).value + page) {
      ++kept;
    } else {
      stale_bits(id)[page / kWordBits] |= std::uint64_t{1} << (page % kWordBits);
    }
  }
  if (kept < valid.size()) throw bad_state(id, "is restored with a valid page that was never written");
  valid_pages_[index(b.ns)] += b.valid;
  available_pages_[index(b.ns)] -= geometry_.pages_per_block;
  ++p.used[index(b.ns)];
  if (record.state == BlockState::bad || record.state == BlockState::retired) {
    b.state = b.valid == 0 ? BlockState::bad : BlockState::retired;
    leave_service(id);
    return;
  }
  b.state = BlockState::full;
  victims_.add(group(plane_of(id), b.ns), id, b.valid, clock_);
}

void BlockManager::register_statistics(Statistics& s) const {
  s.counter(kGrownBadBlocks, grown_bad_, skip_zero());
  const auto erases = [&](const CounterInfo& figure, auto value) {
    s.value(
        figure.name, [this, value] { return double(value(wear())); }, figure.unit, figure.sentence,
        written_if([this] { return wear().max > 0; }));
  };
  erases(WearStatistics::kMin, [](const WearStatistics& wear) { return wear.min; });
  erases(WearStatistics::kMean, [](const WearStatistics& wear) { return wear.mean; });
  erases(WearStatistics::kMax, [](const WearStatistics& wear) { return wear.max; });
}

}  // namespace csdsim::ftl
