// The block namespace: page-level mapping with greedy garbage collection.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/page_op.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/page_map.h"
#include "ftl/core/stripe.h"

namespace csdsim::ftl {

struct BlockFtlConfig {
  double over_provisioning = 0.07;   ///< share of the namespace's flash that is not exported, in [0, 1)
  std::uint32_t gc_free_blocks = 2;  ///< garbage collection starts in a plane at this many free blocks; at least 1
  StripeOrder stripe_order = kChannelDiePlane;
  PageCheck check = PageCheck::key;
};

enum class IoStatus : std::uint8_t { ok, out_of_range, out_of_space };

/// Page operations that may run side by side.
using Phase = std::vector<PageOp>;

/// What a request costs: phase i+1 may start when phase i is done. The state has changed already; requests that are in
/// flight together must reach each plane in the order in which they were planned.
struct IoPlan {
  IoStatus status = IoStatus::ok;
  std::vector<Phase> phases;
};

struct BlockFtlStats {
  std::uint64_t host_pages_read = 0;     ///< page reads for host reads
  std::uint64_t unwritten_reads = 0;     ///< logical pages read as zeros, without flash
  std::uint64_t merge_reads = 0;         ///< page reads to complete a partial write
  std::uint64_t host_pages_written = 0;  ///< programs for host writes
  std::uint64_t gc_pages_moved = 0;      ///< page reads, and programs, of garbage collection
  std::uint64_t gc_erases = 0;

  /// Programs per host program; 1 before the first write.
  double write_amplification() const {
    if (host_pages_written == 0) return 1.0;
    return static_cast<double>(host_pages_written + gc_pages_moved) / static_cast<double>(host_pages_written);
  }
};

/// Offsets and lengths are bytes of the namespace. State changes at once; the returned plan says what it takes. `data`
/// and `out` are empty in timing mode and `length` bytes long otherwise.
class BlockFtl {
 public:
  /// Throws UserError if the namespace's share of the flash is too small to collect garbage in, or on a bad config.
  BlockFtl(const BlockFtlConfig& config, BlockManager& blocks, BackingStore& store);

  /// Exported capacity: (1 - over_provisioning) of the namespace's flash, and never the blocks that collection needs.
  Bytes capacity() const { return page_size_ * map_.logical_pages(); }

  /// Appends the page reads that it takes to `ops`, which may run side by side.
  IoStatus read(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops);
  /// The same as a plan of one phase, of none where nothing is in flash.
  IoPlan read(Bytes offset, Bytes length, std::span<std::byte> out = {});

  /// A partly covered page is read, merged and written. Out of space cannot happen within capacity(); should it, pages
  /// before the failing one are written.
  IoPlan write(Bytes offset, Bytes length, std::span<const std::byte> data = {});

  /// Pages that are covered wholly read as zeros from now on; partly covered ones keep their bytes.
  IoPlan trim(Bytes offset, Bytes length);

  /// Fills the first `working_set` bytes (rounded up to pages) of an untouched drive, instantly: sequentially along the
  /// stripe order, or with `seed` in random order. Timing mode only (there are no bytes to fill in); throws UserError
  /// otherwise.
  void precondition(Bytes working_set, std::optional<std::uint64_t> seed);

  PhysicalPageAddress lookup(LogicalPage page) const { return map_.lookup(page); }
  const BlockFtlStats& stats() const { return stats_; }

 private:
  class PlanBuilder;

  bool in_range(Bytes offset, Bytes length) const;
  std::uint32_t page_bytes() const { return static_cast<std::uint32_t>(page_size_.value); }
  PageOp op(PhysicalPageAddress ppa, PageOpKind kind, OpClass op_class) const;
  std::optional<PhysicalPageAddress> place(PlanBuilder& plan);
  void collect(PlaneId plane, PlanBuilder& plan);
  void relocate(BlockId victim, std::vector<Phase>& phases);
  void invalidate(PhysicalPageAddress old);
  void merge(LogicalPage page, std::uint64_t first, std::span<const std::byte> data, PlanBuilder& plan);

  BlockFtlConfig config_;
  FlashGeometry geometry_;
  Bytes page_size_;
  BlockManager& blocks_;
  BackingStore& store_;
  Stripe stripe_;
  PageMap map_;
  std::uint64_t cursor_ = 0;           ///< stripe rank of the next host page
  std::vector<std::byte> page_image_;  ///< scratch: the page being written
  BlockFtlStats stats_;
};

}  // namespace csdsim::ftl
