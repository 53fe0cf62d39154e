// The filters of the NAND flash controllers on pages of the KV cache: a filter passes the wanted rows of a page and
// drops the others (InstInfer, section IV-B).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/fixed_divisor.h"
#include "contracts/page_op.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::nfc {

/// Where the filter sits, which decides the cost of a row that is not wanted: on the controller side of the channel
/// (`nfc`) the whole page crosses the channel, on the die only the wanted rows do. Pages without a wanted row cost
/// nothing in either place: they are not read. Without a filter (`none`) whole pages reach whoever asked for them.
enum class FilterLocation : std::uint8_t { nfc, die, none };

/// What a filter has been given and what it has passed.
struct FilterCounts {
  std::uint64_t pages = 0;
  std::uint64_t bytes_in = 0;  ///< whole pages, or the codewords that hold wanted rows
  std::uint64_t bytes_out = 0;
};

/// The filters of a drive, one per channel: what passes, and how much. Their time is the flash's
/// (FlashTiming::filter_bandwidth). Where all rows of a page are wanted, the page passes as it is.
class KvFilter {
 public:
  KvFilter(const FlashGeometry& geometry, FilterLocation location);

  /// Reads of attention that are planned: `wanted[i]` bytes of ops[i] are to pass. A filter on the die shortens the
  /// transfers.
  void plan(std::span<PageOp> ops, std::span<const std::uint32_t> wanted);

  bool present() const { return !counts_.empty(); }

  /// A page of mask.size() rows of `row` bytes each streams through a filter: appends, in their order, where the rows
  /// begin whose bit is set.
  void pass(const std::byte* page, std::size_t row, const std::vector<bool>& mask, std::vector<const std::byte*>& out);
  /// Bytes of the rows that pass() has passed.
  std::uint64_t passed_bytes() const { return passed_bytes_; }

  /// [ChannelId]; empty without filters.
  const std::vector<FilterCounts>& counts() const { return counts_; }
  /// Registers the counts that are not 0; the filter must outlive the dump.
  void register_statistics(Statistics& statistics) const;

 private:
  FixedDivisor pages_per_channel_;
  FilterLocation location_;
  std::vector<FilterCounts> counts_;
  std::uint64_t passed_bytes_ = 0;
};

}  // namespace csdsim::nfc
