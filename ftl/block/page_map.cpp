#include "ftl/block/page_map.h"

#include <algorithm>
#include <cmath>

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

/// (a + b) modulo `values`, for a below and b not above it.
constexpr std::uint64_t sum_below(std::uint64_t a, std::uint64_t b, std::uint64_t values) {
  // Without a branch, which the processor could not predict. Where sum < values, the difference wraps to a large
  // number.
  const std::uint64_t sum = a + b;
  return std::min(sum, sum - values);
}

/// The least number whose square is not less than `n`.
std::uint64_t root_up(std::uint64_t n) {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= n) --root;
  return root;
}

}  // namespace

PagePermutation::PagePermutation(std::uint64_t size, std::optional<std::uint64_t> seed)
    : size_(size),
      low_(root_up(std::max<std::uint64_t>(1, size))),
      high_(std::max<std::uint64_t>(1, (size + low_ - 1) / low_)),
      by_low_(low_),
      identity_(!seed.has_value()) {
  std::uint64_t state = seed.value_or(0);
  for (Round& round : rounds_) {
    round.factor = (state = mix(state)) | 1;
    round.summand = (round.factor >> 40) * round.factor;
  }
}

/// Half of the finaliser above, which is enough of a round and has a short way through the processor: a table would be
/// shorter still, but what a drive does between two reads throws it out of the cache.
inline std::uint64_t PagePermutation::round(std::uint64_t half, int r, std::uint64_t values) const {
  const Round& key = rounds_[static_cast<std::size_t>(r)];
  std::uint64_t bits = half * key.factor + key.summand;
  bits = (bits ^ (bits >> 29)) * 0xBF58476D1CE4E5B9u;
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * values) >> 64);
}

[[gnu::always_inline]] inline std::uint64_t PagePermutation::step(std::uint64_t x) const {
  std::uint64_t high = by_low_.quotient(x);
  std::uint64_t low = x - high * low_;
#pragma GCC unroll 4
  for (int r = 0; r < kRounds; r += 2) {
    low = sum_below(low, round(high, r, low_), low_);
    high = sum_below(high, round(low, r + 1, high_), high_);
  }
  return high * low_ + low;
}

std::uint64_t PagePermutation::step_inside(std::uint64_t x) const {
  while (x >= size_) x = step(x);
  return x;
}

[[gnu::always_inline]] inline std::uint64_t PagePermutation::forward_inline(std::uint64_t x) const {
  if (identity_) return x;
  x = step(x);
  return x < size_ ? x : step_inside(x);
}

std::uint64_t PagePermutation::forward(std::uint64_t x) const { return forward_inline(x); }

std::uint64_t PagePermutation::backward(std::uint64_t y) const {
  if (identity_) return y;
  do {
    std::uint64_t high = by_low_.quotient(y);
    std::uint64_t low = y - high * low_;
    for (int r = kRounds; r > 0; r -= 2) {
      high = sum_below(high, high_ - round(low, r - 1, high_), high_);
      low = sum_below(low, low_ - round(high, r - 2, low_), low_);
    }
    y = high * low_ + low;
  } while (y >= size_);
  return y;
}

PageMap::PageMap(const FlashGeometry& geometry, const StripeOrder& order, std::uint64_t logical_pages,
                 std::uint32_t run)
    : geometry_(geometry),
      stripe_(geometry, order),
      planes_(geometry.planes()),
      by_planes_(planes_),
      plane_pages_(geometry.pages_per_plane()),
      by_plane_pages_(plane_pages_),
      logical_pages_(logical_pages),
      run_(run),
      by_run_(run),
      physical_(logical_pages, geometry.pages() + kFirst),
      logical_(geometry.pages(), logical_pages + kFirst) {}

void PageMap::precondition(std::uint64_t pages, std::optional<std::uint64_t> seed, bool keep_plane) {
  if (pages > logical_pages_) throw InternalError("more pages are preconditioned than the namespace has");
  preconditioned_ = pages;
  keep_plane_ = keep_plane;
  full_rows_ = pages / (std::uint64_t{run_} * geometry_.planes()) * run_;
  permutation_ = PagePermutation(keep_plane ? full_rows_ : pages, seed);
  initials_ = {};
}

inline PhysicalPageAddress PageMap::address_of(const Place& place) const {
  return {stripe_.plane_of_rank(static_cast<std::uint32_t>(place.rank)).value * plane_pages_ + place.row};
}

PageMap::Place PageMap::place_of(std::uint64_t slot) const {
  if (run_ == 1) {
    const std::uint64_t row = by_planes_.quotient(slot);
    return {row, slot - row * planes_};
  }
  const std::uint64_t group = by_run_.quotient(slot);
  const std::uint64_t row = by_planes_.quotient(group);
  return {row * run_ + (slot - group * run_), group - row * planes_};
}

inline std::uint64_t PageMap::slot_of(const Place& place) const {
  return (place.row / run_ * planes_ + place.rank) * run_ + place.row % run_;
}

PhysicalPageAddress PageMap::lookup_unwritten(LogicalPage page, std::uint64_t entry) const {
  if (entry == kUnmapped || page.value >= preconditioned_) return PhysicalPageAddress::invalid();
  if (keep_plane_ || run_ != 1) [[unlikely]]
    return lookup_in_plane(page);
  const std::uint64_t slot = permutation_.forward_inline(page.value);
  const std::uint64_t row = by_planes_.quotient(slot);
  return address_of({row, slot - row * planes_});
}

/// lookup_unwritten() of a map that keeps planes or has runs.
PhysicalPageAddress PageMap::lookup_in_plane(LogicalPage page) const {
  Place place = place_of(keep_plane_ ? page.value : permutation_.forward_inline(page.value));
  // The last row may be short: it stays where it is.
  if (keep_plane_ && place.row < full_rows_) place.row = permutation_.forward(place.row);
  return address_of(place);
}

/// lookup_unwritten() that keeps what it has computed.
inline PhysicalPageAddress PageMap::lookup_again(LogicalPage page, std::uint64_t entry) {
  if (entry == kUnmapped || page.value >= preconditioned_) return PhysicalPageAddress::invalid();
  Initial& initial = initials_[page.value % kInitials];
  if (initial.page != page) initial = {page, lookup_unwritten(page, entry)};
  return initial.place;
}

PageMap::Run PageMap::lookup_run(LogicalPage page, std::uint32_t most) {
  const std::uint64_t e = physical_.get(page.value);
  return run_from(page, e, e >= kFirst ? PhysicalPageAddress{e - kFirst} : lookup_again(page, e), most);
}

PageMap::Run PageMap::find_run(LogicalPage page, std::uint32_t most) const {
  const std::uint64_t e = physical_.get(page.value);
  return run_from(page, e, e >= kFirst ? PhysicalPageAddress{e - kFirst} : lookup_unwritten(page, e), most);
}

/// The run that begins with `page`, which has entry `e` and lives at `first`.
inline PageMap::Run PageMap::run_from(LogicalPage page, std::uint64_t e, PhysicalPageAddress first,
                                      std::uint32_t most) const {
  Run run{first, 1};
  if (e >= kFirst) {
    while (run.count < most && physical_.get(page.value + run.count) == e + run.count) ++run.count;
    return run;
  }
  // In the order of the stripe, the pages of a word line follow each other; in random order nearly none does.
  if (!run.first.valid() || run_ == 1 || !permutation_.is_identity()) return run;
  const std::uint64_t in_line = run_ - (page.value - by_run_.quotient(page.value) * run_);
  const std::uint64_t end = std::min({std::uint64_t{most}, in_line, preconditioned_ - page.value});
  while (run.count < end && physical_.get(page.value + run.count) == 0) ++run.count;
  return run;
}

LogicalPage PageMap::initial_owner(PhysicalPageAddress ppa) const {
  const std::uint64_t plane = by_plane_pages_.quotient(ppa.value);
  const std::uint64_t row = ppa.value - plane * geometry_.pages_per_plane();
  const std::uint64_t rank = stripe_.rank_of(PlaneId{static_cast<std::uint32_t>(plane)});
  const std::uint64_t slot = slot_of({row, rank});
  if (slot >= preconditioned_) return kNobody;
  if (!keep_plane_) return LogicalPage{permutation_.backward(slot)};
  if (row >= full_rows_) return LogicalPage{slot};
  return LogicalPage{slot_of({permutation_.backward(row), rank})};
}

std::optional<LogicalPage> PageMap::owner(PhysicalPageAddress ppa) const {
  const LogicalPage page = resident(ppa);
  if (page == kNobody || lookup(page) != ppa) return std::nullopt;
  return page;
}

PhysicalPageAddress PageMap::unbind(LogicalPage page) {
  const PhysicalPageAddress before = lookup(page);
  physical_.set(page.value, kUnmapped);
  return before;
}

}  // namespace csdsim::ftl
