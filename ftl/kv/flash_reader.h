// Reading pages of the KV namespace: the operation, with its retries and failures, and the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ftl/kv/kv_flash.h"
#include "ftl/kv/kv_losses.h"
#include "ftl/kv/parked_pages.h"
#include "ftl/kv/reclaim_queue.h"

namespace csdsim::ftl {

/// The read of a page, and whether its content is lost.
struct PlannedRead {
  PageOp op;
  bool lost = false;
};

class FlashReader {
 public:
  FlashReader(KvFlash& flash, const ParkedPages& parked, const KvLosses& losses, ReclaimQueue& reclaim)
      : flash_(flash), parked_(parked), losses_(losses), reclaim_(reclaim) {}

  /// The operation that reads a page of the flash. It counts as a read of its block.
  PlannedRead plan(PhysicalPageAddress ppa, OpClass op_class);
  /// Reads of the token pages of [window.first, end) that are not in DRAM any more. True if one of them is lost.
  bool read_back(const KvLayout& layout, const KvTile& tile, const KvWindow& window, std::uint32_t end, FlushJob& job);
  /// The bytes of a page that was written for `segment`, checked.
  std::span<const std::byte> bytes(const KvPageId& page, const MapSegment& segment, PhysicalPageAddress ppa,
                                   std::uint32_t partial_tokens = 0) const;

 private:
  KvFlash& flash_;
  const ParkedPages& parked_;
  const KvLosses& losses_;
  ReclaimQueue& reclaim_;
};

}  // namespace csdsim::ftl
