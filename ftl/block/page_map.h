// The page-level map of the block namespace: logical page -> physical page, and back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/address.h"
#include "base/fixed_divisor.h"
#include "ftl/core/sparse_array.h"
#include "ftl/core/stripe.h"

namespace csdsim::ftl {

using LogicalPage = StrongId<struct LogicalPageTag, std::uint64_t>;  ///< page of the block namespace

/// A seeded bijection on [0, size), so that a random permutation of hundreds of millions of pages needs no table: a
/// four-round Feistel network over pairs (high, low), whose number is `size` or little more (Black and Rogaway, CT-RSA
/// 2002). A pair outside walks on along its cycle, which so few do that a branch predictor does not notice; with halves
/// of whole bits every fourth page would. `seed` empty gives the identity.
class PagePermutation {
 public:
  PagePermutation(std::uint64_t size, std::optional<std::uint64_t> seed);
  std::uint64_t forward(std::uint64_t x) const;
  std::uint64_t backward(std::uint64_t y) const;
  bool is_identity() const { return identity_; }

 private:
  static constexpr int kRounds = 4;

  /// forward() as a part of its caller, for the lookup of a page.
  std::uint64_t forward_inline(std::uint64_t x) const;
  friend class PageMap;
  /// Where x is mapped among all pairs.
  std::uint64_t step(std::uint64_t x) const;
  /// The first number below `size` from x on, along its cycle.
  [[gnu::noinline]] std::uint64_t step_inside(std::uint64_t x) const;
  /// The round function: a number below `values` from a half and round `r`.
  std::uint64_t round(std::uint64_t half, int r, std::uint64_t values) const;

  std::uint64_t size_;
  std::uint64_t low_;   ///< values of the low half: the least that gives a square of at least `size`
  std::uint64_t high_;  ///< values of the high half, at most low_
  FixedDivisor by_low_;
  bool identity_;
  struct Round {
    std::uint64_t factor = 1;  ///< odd
    std::uint64_t summand = 0;
  };
  std::array<Round, kRounds> rounds_{};
};

/// Numbers below `limit` that are 0 until written, in 32 bits each where that is enough.
class PageNumbers {
 public:
  PageNumbers(std::uint64_t size, std::uint64_t limit)
      : wide_(limit > std::uint64_t{1} << 32), narrow_(wide_ ? 0 : size), full_(wide_ ? size : 0) {}

  std::uint64_t get(std::uint64_t i) const { return wide_ ? full_.get(i) : narrow_.get(i); }
  void set(std::uint64_t i, std::uint64_t value) {
    if (wide_) {
      full_[i] = value;
    } else {
      narrow_[i] = static_cast<std::uint32_t>(value);
    }
  }
  /// SparseArray::set_run
  void set_run(std::uint64_t i, std::uint64_t value, std::uint32_t count) {
    if (wide_) {
      full_.set_run(i, value, count);
    } else {
      narrow_.set_run(i, static_cast<std::uint32_t>(value), count);
    }
  }
  std::uint64_t next_written(std::uint64_t i) const { return wide_ ? full_.next_written(i) : narrow_.next_written(i); }
  void prefetch(std::uint64_t i) const {
    if (wide_) {
      full_.prefetch(i);
    } else {
      narrow_.prefetch(i);
    }
  }

 private:
  bool wide_;
  SparseArray<std::uint32_t> narrow_;
  SparseArray<std::uint64_t> full_;
};

/// Both directions of the map, together 8 bytes per page (16 on drives of 2^32 pages and more), and only for pages that
/// were written: the map of a preconditioned drive is a formula until then.
class PageMap {
 public:
  /// `run`: so many consecutive pages lie on a plane before the next plane follows.
  PageMap(const FlashGeometry& geometry, const StripeOrder& order, std::uint64_t logical_pages, std::uint32_t run = 1);

  /// Maps logical pages [0, pages) over the planes in stripe order, from block 0 of each plane on; with a seed, in
  /// random order. `keep_plane`: random order within each plane only, page p on the plane of rank p. The map must be
  /// empty.
  void precondition(std::uint64_t pages, std::optional<std::uint64_t> seed, bool keep_plane = false);

  /// Where a logical page lives; invalid() if it was never written or was trimmed.
  PhysicalPageAddress lookup(LogicalPage page) const {
    const std::uint64_t e = physical_.get(page.value);
    return e >= kFirst ? PhysicalPageAddress{e - kFirst} : lookup_unwritten(page, e);
  }
  /// Consecutive pages that live at consecutive places, or none of which lives anywhere: then `first` is invalid().
  struct Run {
    PhysicalPageAddress first;
    std::uint32_t count = 0;
  };
  /// The run that begins with `page`, up to `most` pages. It may end early. A write looks up its pages twice, first to
  /// prefetch: places that take long to compute are kept until then.
  Run lookup_run(LogicalPage page, std::uint32_t most);
  /// The same for pages that are looked up once.
  Run find_run(LogicalPage page, std::uint32_t most) const;
  /// The first page at or after `page` that may live somewhere: what was never written is passed over in large steps.
  LogicalPage next_written(LogicalPage page) const {
    return page.value < preconditioned_ ? page : LogicalPage{physical_.next_written(page.value)};
  }
  /// Brings the entry of a page into the cache: for callers that know what they will look up.
  void prefetch(LogicalPage page) const { physical_.prefetch(page.value); }

  /// The logical page that was last bound to `ppa`. It lives there only if lookup() says so.
  LogicalPage resident(PhysicalPageAddress ppa) const {
    const std::uint64_t e = logical_.get(ppa.value);
    return e >= kFirst ? LogicalPage{e - kFirst} : initial_owner(ppa);
  }

  /// The logical page that lives at `ppa`, if the page there is valid. Entries of erased blocks may stay: their logical
  /// pages are bound elsewhere by then.
  std::optional<LogicalPage> owner(PhysicalPageAddress ppa) const;

  /// Points `page` at `ppa` and returns where it pointed before.
  PhysicalPageAddress bind(LogicalPage page, PhysicalPageAddress ppa) {
    const PhysicalPageAddress before = lookup(page);
    rebind(page, ppa);
    return before;
  }
  /// The same for a caller that knows where it pointed.
  void rebind(LogicalPage page, PhysicalPageAddress ppa) {
    logical_.set(ppa.value, page.value + kFirst);
    physical_.set(page.value, ppa.value + kFirst);
  }
  /// rebind() of pages from `page` on to the places from `ppa` on.
  void rebind_run(LogicalPage page, PhysicalPageAddress ppa, std::uint32_t count) {
    logical_.set_run(ppa.value, page.value + kFirst, count);
    physical_.set_run(page.value, ppa.value + kFirst, count);
  }
  PhysicalPageAddress unbind(LogicalPage page);

  std::uint64_t logical_pages() const { return logical_pages_; }

 private:
  // Entries: 0 as preconditioned, kUnmapped, or the number + kFirst.
  static constexpr std::uint64_t kUnmapped = 1;
  static constexpr std::uint64_t kFirst = 2;

  /// Where the n-th preconditioned page is, by its number in stripe order.
  struct Place {
    std::uint64_t row;   ///< page within its plane
    std::uint64_t rank;  ///< rank of the plane
  };
  Place place_of(std::uint64_t slot) const;
  std::uint64_t slot_of(const Place& place) const;
  PhysicalPageAddress address_of(const Place& place) const;
  PhysicalPageAddress lookup_unwritten(LogicalPage page, std::uint64_t entry) const;
  [[gnu::noinline]] PhysicalPageAddress lookup_in_plane(LogicalPage page) const;
  PhysicalPageAddress lookup_again(LogicalPage page, std::uint64_t entry);
  Run run_from(LogicalPage page, std::uint64_t e, PhysicalPageAddress first, std::uint32_t most) const;
  LogicalPage initial_owner(PhysicalPageAddress ppa) const;

  FlashGeometry geometry_;
  Stripe stripe_;
  std::uint64_t planes_;
  FixedDivisor by_planes_;
  std::uint64_t plane_pages_;
  FixedDivisor by_plane_pages_;
  std::uint64_t logical_pages_;
  std::uint32_t run_;
  FixedDivisor by_run_;
  std::uint64_t preconditioned_ = 0;
  bool keep_plane_ = false;
  std::uint64_t full_rows_ = 0;  ///< rows of preconditioned pages that every plane has
  PagePermutation permutation_{1, std::nullopt};
  PageNumbers physical_;  ///< by logical page
  PageNumbers logical_;   ///< by physical page
  /// Places of preconditioned pages that were computed last, by the lowest bits of the page.
  struct Initial {
    LogicalPage page{~std::uint64_t{0}};
    PhysicalPageAddress place;
  };
  static constexpr std::size_t kInitials = 256;  ///< enough for a few requests, and small enough to stay in the cache
  std::array<Initial, kInitials> initials_{};
};

}  // namespace csdsim::ftl
