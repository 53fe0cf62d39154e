// The tree of statistics. Owners bump plain integers on the hot path; names, ratios and text are made at the dump.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counter.h"
#include "base/histogram.h"
#include "base/units.h"

namespace csdsim {

/// The origin of a figure.
enum class StatOrigin : std::uint8_t { modelled, measured, calibrated, sampled };
std::string_view to_string(StatOrigin origin);

/// The form in which a statistic is written.
struct StatOptions {
  StatOrigin origin = StatOrigin::modelled;
  bool skip_zero = false;              ///< it is left out while its value is 0: what did not happen is absent
  std::function<bool()> written = {};  ///< unset: always; otherwise it is left out where this returns false at the dump

  StatOptions() = default;
  StatOptions(StatOrigin o) : origin(o) {}
};
/// For counters of what need not happen.
StatOptions skip_zero();
/// For statistics that mean something only where `condition` holds at the dump.
StatOptions written_if(std::function<bool()> condition);

/// One node of the tree: statistics of one owner, and nested owners. What is registered is read at the dump, so owners
/// must outlive it, and whether a statistic is written is decided there. Registering a name twice in one node is an
/// InternalError, as are an empty name, unit or sentence (a unit of "1" is a bare number).
class Statistics {
 public:
  Statistics();
  ~Statistics();
  Statistics(Statistics&&) noexcept;
  Statistics& operator=(Statistics&&) noexcept;

  /// The nested node of that name, made on first use. References stay valid.
  Statistics& child(std::string_view name);
  /// The same for a node that is left out where nothing is written into it.
  Statistics& child_if_any(std::string_view name);

  void counter(std::string_view name, const std::uint64_t& value, std::string_view unit, std::string_view sentence,
               StatOptions options = {});
  void counter(const CounterInfo& info, const std::uint64_t& value, StatOptions options = {}) {
    counter(info.name, value, info.unit, info.sentence, std::move(options));
  }
  /// All counters in `rows`, which may be those of a base of Counts.
  template <class Counts, class Rows>
  void counters(const Counts& counts, const Rows& rows) {
    for (const auto& row : rows)
      counter(row.info, counts.*row.value, row.skip_zero ? csdsim::skip_zero() : StatOptions{});
  }
  /// A time, written in seconds.
  void time(std::string_view name, const SimTime& value, std::string_view sentence, StatOptions options = {});
  /// Values are read at the dump: a temporary is gone by then.
  void counter(std::string_view, const std::uint64_t&&, std::string_view, std::string_view, StatOptions = {}) = delete;
  void time(std::string_view, const SimTime&&, std::string_view, StatOptions = {}) = delete;
  /// Worked out at the dump: ratios, shares. A value that is not finite is left out: what is unknown is absent, never
  /// 0.
  void value(std::string_view name, std::function<double()> value, std::string_view unit, std::string_view sentence,
             StatOptions options = {});
  /// Written as count, mean, min, p50, p90, p99, p99_9 and max; `scale` converts a sample to `unit`. `skip_zero` skips
  /// an empty histogram.
  void histogram(std::string_view name, const Histogram& value, double scale, std::string_view unit,
                 std::string_view sentence, StatOptions options = {});

  /// Called at the dump before anything of this node is read: an owner brings its counters up to date.
  void before_dump(std::function<void()> update) { update_ = std::move(update); }

  /// In order of registration: {name: {value, unit, doc, origin}, child: {...}}.
  nlohmann::ordered_json dump() const;

 private:
  struct Item;
  /// `read` returns null for what is not to be written.
  void add(std::string_view name, std::string_view unit, std::string_view sentence, StatOptions options,
           std::function<nlohmann::ordered_json()> read);
  std::vector<Item> items_;
  std::function<void()> update_;
  bool skip_empty_ = false;
};

}  // namespace csdsim
