// A counter, stated once by who counts: its statistic and the metrics that are made of it take unit and sentence from
// here.
#pragma once

#include <cstdint>
#include <string_view>

namespace csdsim {

struct CounterInfo {
  std::string_view name, unit;
  std::string_view sentence;  ///< stands alone, and begins with a word that may be written small
};

/// A counter of a struct of counts. Counts of several owners add up.
template <class Counts>
struct Counter {
  std::uint64_t Counts::*value;
  CounterInfo info;
  bool skip_zero = true;  ///< the statistic is left out while it is 0
};

/// `to` += `from`, for the counters in `rows`, which may be those of a base of Counts.
template <class Counts, class Rows>
void add_counters(Counts& to, const Counts& from, const Rows& rows) {
  for (const auto& row : rows) to.*row.value += from.*row.value;
}

/// The counter in `rows` with this value; null: it is not among them.
template <class Counts, class Rows>
const CounterInfo* find_counter(std::uint64_t Counts::*value, const Rows& rows) {
  for (const auto& row : rows)
    if (row.value == value) return &row.info;
  return nullptr;
}

}  // namespace csdsim
