#include "host_runtime/core/machine/gemm_rates.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

namespace {

constexpr std::size_t kMostEntries = 64;

/// Seconds of an operation per row.
double time_of(std::uint64_t rows, ComputeRate rate) {
  return static_cast<double>(rows) / static_cast<double>(rate.flop_per_second);
}

}  // namespace

std::string GemmRates::problem() const {
  if (rows.size() != rates.size()) return fmt::format("{} numbers of rows and {} rates", rows.size(), rates.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0 || rates[i].flop_per_second == 0) return fmt::format("entry {} has a 0", i + 1);
    if (i == 0) continue;
    if (rows[i] <= rows[i - 1])
      return fmt::format("{} rows come after {}, give them in rising order", rows[i], rows[i - 1]);
    if (time_of(rows[i], rates[i]) < time_of(rows[i - 1], rates[i - 1]))
      return fmt::format("{} rows at {} take less time than {} at {}", rows[i], format_quantity(rates[i]), rows[i - 1],
                         format_quantity(rates[i - 1]));
  }
  return "";
}

double GemmRates::rate(double of_rows) const {
  if (!given()) throw InternalError("a rate of matrix products from an empty table");
  const auto next = static_cast<std::size_t>(
      std::ranges::find_if(rows, [&](std::uint64_t r) { return static_cast<double>(r) >= of_rows; }) - rows.begin());
  if (next == 0) return static_cast<double>(rates.front().flop_per_second);
  if (next == rows.size()) return static_cast<double>(rates.back().flop_per_second);
  const double before = time_of(rows[next - 1], rates[next - 1]), after = time_of(rows[next], rates[next]);
  const double part =
      (of_rows - static_cast<double>(rows[next - 1])) / static_cast<double>(rows[next] - rows[next - 1]);
  return of_rows / (before + part * (after - before));
}

ComputeRate GemmRates::highest() const {
  if (!given()) throw InternalError("the highest rate of an empty table");
  return *std::ranges::max_element(rates, {}, &ComputeRate::flop_per_second);
}

void describe(ParamVisitor& v, GemmRates& c) {
  v.list("rows", c.rows, {0, kMostEntries}, "Rows (tokens) of matrix products, in rising order; empty: no table.",
         assumed("efficiency.gemm holds for all of them"));
  v.list("rates", c.rates, {0, kMostEntries},
         "Rate of products of so many rows, in the place of fp16_rate and efficiency.gemm. Time grows evenly between "
         "two entries; below the first and beyond the last one the rate is theirs.",
         assumed("csdsim profile-gpu measures them"));
}

}  // namespace csdsim::host
