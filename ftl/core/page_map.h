// The page-level map of the block namespace: logical page -> physical page, and back.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/address.h"
#include "ftl/core/stripe.h"

namespace csdsim::ftl {

using LogicalPage = StrongId<struct LogicalPageTag, std::uint64_t>;  ///< page of the block namespace

/// A seeded bijection on [0, size): a four-round Feistel network with cycle walking, so that a random permutation of
/// hundreds of millions of pages needs no table. `seed` empty gives the identity.
class PagePermutation {
 public:
  PagePermutation(std::uint64_t size, std::optional<std::uint64_t> seed);
  std::uint64_t forward(std::uint64_t x) const;
  std::uint64_t backward(std::uint64_t y) const;

 private:
  static constexpr int kRounds = 4;
  std::uint64_t round(std::uint64_t half, int r) const;

  std::uint64_t size_;
  int half_bits_ = 1;
  bool identity_;
  std::array<std::uint64_t, kRounds> keys_{};
};

/// Both directions of the map. Chunks of it are materialised when they are first changed: a preconditioned drive is a
/// formula until somebody writes to it.
class PageMap {
 public:
  PageMap(const FlashGeometry& geometry, const StripeOrder& order, std::uint64_t logical_pages);

  /// Maps logical pages [0, pages) over the planes in stripe order, from block 0 of each plane on; with a seed, in
  /// random order. The map must be empty.
  void precondition(std::uint64_t pages, std::optional<std::uint64_t> seed);

  /// Where a logical page lives; invalid() if it was never written or was trimmed.
  PhysicalPageAddress lookup(LogicalPage page) const;

  /// The logical page that lives at `ppa`, if the page there is valid. Who lived in a block before it was erased need
  /// not be forgotten: those pages are bound elsewhere by then.
  std::optional<LogicalPage> owner(PhysicalPageAddress ppa) const;

  /// Points `page` at `ppa` and returns where it pointed before.
  PhysicalPageAddress bind(LogicalPage page, PhysicalPageAddress ppa);
  PhysicalPageAddress unbind(LogicalPage page);

  std::uint64_t logical_pages() const { return logical_pages_; }

 private:
  static constexpr std::uint64_t kChunk = 1024;
  using Chunk = std::array<PhysicalPageAddress, kChunk>;
  using Residents = std::vector<LogicalPage>;

  PhysicalPageAddress initial_address(std::uint64_t page) const;
  LogicalPage initial_owner(PhysicalPageAddress ppa) const;
  PhysicalPageAddress& entry(LogicalPage page);
  Residents& residents(BlockId block);

  FlashGeometry geometry_;
  Stripe stripe_;
  std::uint64_t logical_pages_;
  std::uint64_t preconditioned_ = 0;
  PagePermutation permutation_{1, std::nullopt};
  std::vector<std::unique_ptr<Chunk>> chunks_;         ///< logical -> physical
  std::vector<std::unique_ptr<Residents>> residents_;  ///< physical -> logical, by BlockId
};

}  // namespace csdsim::ftl
