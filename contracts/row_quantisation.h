// Rows of weights, K or V with few bits per element, and the scales of their groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fp16.h"
#include "base/units.h"

namespace csdsim {

/// The format of a stored row: as it is, or as integers of `bits` bits with one FP16 scale per group of consecutive
/// elements. An integer q stands for q times its scale; the largest integer of a group, 127 or 7, stands for its
/// largest absolute value. A row has its integers first, two per byte with 4 bits, and then its scales.
struct RowQuantisation {
  std::uint32_t bits = 16;   ///< 16, 8 or 4; 16: not quantised
  std::uint32_t group = 64;  ///< elements, at least 1; the last group of a row may be shorter

  bool operator==(const RowQuantisation&) const = default;
  bool quantised() const { return bits != 16; }
  /// Bytes of a row of `elements`, which have `element_bytes` bytes where they are not quantised.
  Bytes row(std::uint64_t elements, std::uint32_t element_bytes) const;
  /// `to` has row(values.size()) bytes. Values are finite.
  void quantise(std::span<const float> values, std::span<std::byte> to) const;
  void dequantise(std::span<const std::byte> row, std::span<float> values) const;
  /// The row that stands for `values`, which dequantise_rows() has made. Another row may stand for the same values.
  /// InternalError if none does.
  void restore(std::span<const Half> values, std::span<std::byte> to) const;
};

/// Quantised rows of `elements` elements as fp16. `to` has as many rows.
void dequantise_rows(const RowQuantisation& format, std::span<const std::byte> rows, std::size_t elements,
                     std::span<Half> to);

}  // namespace csdsim
