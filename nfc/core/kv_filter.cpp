#include "nfc/core/kv_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace csdsim::nfc {
namespace {

/// Word `w` of the bitmap without the bits behind the last row.
std::uint64_t rows_of_word(const PageRows& shape, RowBitmap wanted, std::size_t w) {
  const std::uint64_t left = shape.rows - w * 64;
  return left >= 64 ? wanted[w] : wanted[w] & ((std::uint64_t{1} << left) - 1);
}

std::size_t words(const PageRows& shape, RowBitmap wanted) {
  return std::min<std::size_t>(wanted.size(), (std::size_t{shape.rows} + 63) / 64);
}

}  // namespace

KvFilter::KvFilter(Bytes page_size, FilterLocation location) : page_size_(page_size), location_(location) {
  if (page_size.value == 0) throw UserError("flash.page_size: 0 B is out of range, it must be at least 1 B");
}

bool KvFilter::skips(const PageRows& shape, RowBitmap wanted) { return wanted_rows(shape, wanted) == 0; }

std::uint32_t KvFilter::wanted_rows(const PageRows& shape, RowBitmap wanted) {
  int rows = 0;
  for (std::size_t w = 0; w < words(shape, wanted); ++w) rows += std::popcount(rows_of_word(shape, wanted, w));
  return static_cast<std::uint32_t>(rows);
}

Bytes KvFilter::channel_bytes(const PageRows& shape, RowBitmap wanted) const {
  const std::uint32_t rows = wanted_rows(shape, wanted);
  if (location_ == FilterLocation::die || rows == 0) return shape.row_size * rows;
  return page_size_;
}

Bytes KvFilter::pass(const PageRows& shape, RowBitmap wanted) {
  if (shape.size() > page_size_) {
    throw InternalError(
        fmt::format("{} rows of {} B exceed a page of {} B", shape.rows, shape.row_size.value, page_size_.value));
  }
  const Bytes out = shape.row_size * wanted_rows(shape, wanted);
  ++pages_;
  bytes_in_ += page_size_;
  bytes_out_ += out;
  return out;
}

Bytes KvFilter::pass(const PageRows& shape, RowBitmap wanted, std::span<const std::byte> page,
                     std::span<std::byte> out) {
  const Bytes passed = shape.row_size * wanted_rows(shape, wanted);
  if (page.size() < page_size_.value || out.size() < passed.value) {
    throw InternalError(fmt::format("a page of {} B and room for {} B where the filter needs {} B and {} B",
                                    page.size(), out.size(), page_size_.value, passed.value));
  }
  pass(shape, wanted);
  auto* to = out.data();
  for (std::size_t w = 0; w < words(shape, wanted); ++w) {
    for (std::uint64_t bits = rows_of_word(shape, wanted, w); bits != 0; bits &= bits - 1) {
      const std::size_t row = w * 64 + static_cast<std::size_t>(std::countr_zero(bits));
      to = std::copy_n(page.data() + row * shape.row_size.value, shape.row_size.value, to);
    }
  }
  return passed;
}

}  // namespace csdsim::nfc
