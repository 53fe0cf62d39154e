// Rates of matrix products that grow with their rows, as measured on a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/param.h"
#include "base/quantity.h"

namespace csdsim::host {

/// The rate at some numbers of rows (tokens). Time grows evenly with the rows between two of them; below the first and
/// beyond the last one the rate is theirs.
struct GemmRates {
  std::vector<std::uint64_t> rows;
  std::vector<ComputeRate> rates;

  bool given() const { return !rows.empty(); }
  /// The problem of the table; empty if it has none: rows rise, each has a rate, and more rows never take less time.
  std::string problem() const;
  /// Operations per second of a product of so many rows. InternalError for an empty table.
  double rate(double of_rows) const;
  /// The highest rate. InternalError for an empty table.
  ComputeRate highest() const;
};

void describe(ParamVisitor& v, GemmRates& c);

}  // namespace csdsim::host
