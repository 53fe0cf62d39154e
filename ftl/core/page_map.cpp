#include "ftl/core/page_map.h"

#include <utility>

#include "base/error.h"

namespace csdsim::ftl {
namespace {

constexpr LogicalPage kNobody{~std::uint64_t{0}};

/// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

PagePermutation::PagePermutation(std::uint64_t size, std::optional<std::uint64_t> seed)
    : size_(size), identity_(!seed.has_value()) {
  while (half_bits_ < 31 && (std::uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
  std::uint64_t state = seed.value_or(0);
  for (std::uint64_t& key : keys_) key = state = mix(state);
}

std::uint64_t PagePermutation::round(std::uint64_t half, int r) const {
  return mix(half ^ keys_[static_cast<std::size_t>(r)]) & ((std::uint64_t{1} << half_bits_) - 1);
}

std::uint64_t PagePermutation::forward(std::uint64_t x) const {
  if (identity_) return x;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {  // values outside [0, size) walk on along their cycle until they come back inside
    std::uint64_t left = x >> half_bits_;
    std::uint64_t right = x & mask;
    for (int r = 0; r < kRounds; ++r) left = std::exchange(right, left ^ round(right, r));
    x = (left << half_bits_) | right;
  } while (x >= size_);
  return x;
}

std::uint64_t PagePermutation::backward(std::uint64_t y) const {
  if (identity_) return y;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {
    std::uint64_t left = y >> half_bits_;
    std::uint64_t right = y & mask;
    for (int r = kRounds; r-- > 0;) right = std::exchange(left, right ^ round(left, r));
    y = (left << half_bits_) | right;
  } while (y >= size_);
  return y;
}

PageMap::PageMap(const FlashGeometry& geometry, const StripeOrder& order, std::uint64_t logical_pages)
    : geometry_(geometry), stripe_(geometry, order), logical_pages_(logical_pages) {
  chunks_.resize((logical_pages + kChunk - 1) / kChunk);
  residents_.resize(geometry.blocks());
}

void PageMap::precondition(std::uint64_t pages, std::optional<std::uint64_t> seed) {
  if (pages > logical_pages_) throw InternalError("more pages are preconditioned than the namespace has");
  preconditioned_ = pages;
  permutation_ = PagePermutation(pages, seed);
}

PhysicalPageAddress PageMap::initial_address(std::uint64_t page) const {
  if (page >= preconditioned_) return PhysicalPageAddress::invalid();
  const std::uint64_t slot = permutation_.forward(page);
  const std::uint64_t in_plane = slot / geometry_.planes();
  return {stripe_.plane_at(slot).value * geometry_.pages_per_plane() + in_plane};
}

LogicalPage PageMap::initial_owner(PhysicalPageAddress ppa) const {
  const std::uint64_t in_plane = ppa.value % geometry_.pages_per_plane();
  const std::uint64_t slot = in_plane * geometry_.planes() + stripe_.rank_of(geometry_.plane_of(ppa));
  return slot < preconditioned_ ? LogicalPage{permutation_.backward(slot)} : kNobody;
}

PhysicalPageAddress PageMap::lookup(LogicalPage page) const {
  const auto& chunk = chunks_[page.value / kChunk];
  return chunk ? (*chunk)[page.value % kChunk] : initial_address(page.value);
}

std::optional<LogicalPage> PageMap::owner(PhysicalPageAddress ppa) const {
  const auto& block = residents_[geometry_.block_of(ppa).value];
  const LogicalPage page = block ? (*block)[geometry_.page_in_block(ppa)] : initial_owner(ppa);
  if (page == kNobody || lookup(page) != ppa) return std::nullopt;
  return page;
}

PhysicalPageAddress& PageMap::entry(LogicalPage page) {
  auto& chunk = chunks_[page.value / kChunk];
  if (!chunk) {
    chunk = std::make_unique<Chunk>();
    const std::uint64_t first = page.value / kChunk * kChunk;
    for (std::uint64_t i = 0; i < kChunk; ++i) (*chunk)[i] = initial_address(first + i);
  }
  return (*chunk)[page.value % kChunk];
}

PageMap::Residents& PageMap::residents(BlockId block) {
  auto& slot = residents_[block.value];
  if (!slot) {
    slot = std::make_unique<Residents>(geometry_.pages_per_block);
    const std::uint64_t first = std::uint64_t{block.value} * geometry_.pages_per_block;
    for (std::uint32_t i = 0; i < geometry_.pages_per_block; ++i) (*slot)[i] = initial_owner({first + i});
  }
  return *slot;
}

PhysicalPageAddress PageMap::bind(LogicalPage page, PhysicalPageAddress ppa) {
  residents(geometry_.block_of(ppa))[geometry_.page_in_block(ppa)] = page;
  return std::exchange(entry(page), ppa);
}

PhysicalPageAddress PageMap::unbind(LogicalPage page) {
  return std::exchange(entry(page), PhysicalPageAddress::invalid());
}

}  // namespace csdsim::ftl
