// The filter of a NAND flash controller on pages of the KV cache: passes the wanted rows of a page and drops the rest
// (InstInfer, section IV-B; SparF, algorithm 1, lines 2, 3, 8, 9).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/units.h"

namespace csdsim::nfc {

/// Where the filter sits. It decides what a row that is not wanted costs: on the controller side of the channel (`nfc`)
/// the whole page crosses the channel, on the die only the wanted rows do. Pages without a wanted row cost nothing in
/// either place: they are not read.
enum class FilterLocation : std::uint8_t { nfc, die };

/// Rows of equal size from the start of a page; the rest of the page is padding. A token-major page of K or V has n
/// rows of d * p bytes, one per token; a component-major page of K has m runs of T * p bytes, one per component (d:
/// head dimension, p: bytes per element, n, m, T: tokens, components, tokens per run of the page).
struct PageRows {
  std::uint32_t rows = 0;
  Bytes row_size;
  constexpr Bytes size() const { return row_size * rows; }
};

/// Which rows are wanted: row i is bit i % 64 of word i / 64. Words that are missing mean rows that are not wanted;
/// bits at and above the number of rows are ignored.
using RowBitmap = std::span<const std::uint64_t>;

/// Filter of one NFC with its traffic counters.
class KvFilter {
 public:
  /// Throws UserError if the page size is 0.
  KvFilter(Bytes page_size, FilterLocation location);

  /// True iff no row is wanted, so that the page need not be read.
  static bool skips(const PageRows& shape, RowBitmap wanted);
  /// Number of wanted rows.
  static std::uint32_t wanted_rows(const PageRows& shape, RowBitmap wanted);

  /// Bytes that a read of the page moves over the channel: the page size, or with the filter on the die the wanted
  /// rows. 0 if the page is skipped.
  Bytes channel_bytes(const PageRows& shape, RowBitmap wanted) const;

  /// Counts a page that passes the filter, for timing without data. Returns the bytes that leave it.
  Bytes pass(const PageRows& shape, RowBitmap wanted);

  /// The same with data: copies the wanted rows of `page` to `out`, without gaps, in row order. Throws InternalError if
  /// the rows exceed the page, or `page` or `out` is too short.
  Bytes pass(const PageRows& shape, RowBitmap wanted, std::span<const std::byte> page, std::span<std::byte> out);

  std::uint64_t pages() const { return pages_; }  ///< pages that passed
  Bytes bytes_in() const { return bytes_in_; }    ///< bytes of these pages, padding included
  Bytes bytes_out() const { return bytes_out_; }  ///< bytes of their wanted rows
  FilterLocation location() const { return location_; }

 private:
  Bytes page_size_;
  FilterLocation location_;
  std::uint64_t pages_ = 0;
  Bytes bytes_in_;
  Bytes bytes_out_;
};

}  // namespace csdsim::nfc
