// The work of drives in a period of time: one set of totals for results, phases and energy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/units.h"

namespace csdsim::csd_model {

/// Time and work of one drive, or of several together. Sums and differences make sense field by field: a phase is the
/// difference of two totals.
template <class Count, class Time>
struct DriveTotalsOf {
  Time elapsed{};       ///< simulated time, summed over the drives
  Time read_busy{};     ///< arrays sensing, retries included, summed over planes
  Time program_busy{};  ///< arrays programming, summed over planes
  Time erase_busy{};    ///< arrays erasing, summed over planes
  Time channel_busy{};  ///< summed over channels
  Time to_host_busy{};  ///< links, by direction
  Time to_drive_busy{};
  Time from_controller_busy{};  ///< links between SSD controller and on-board switch, by direction
  Time to_controller_busy{};
  Time fpga_dram_busy{};
  Count page_ops{};
  Count channel_bytes{};        ///< over the flash channels, retries not included
  Count retry_bytes{};          ///< over the flash channels, for retries of reads
  Count programmed_bytes{};     ///< over the flash channels, to be programmed
  Count dram_bytes{};           ///< read or written in controller DRAM, see Drive::totals()
  Count engine_bytes{};         ///< fp16 K and V elements that reached the attention kernels
  Count macs{};                 ///< multiply-accumulates of the attention kernels
  Count neurons{};              ///< neurons of feed-forward networks that these kernels computed
  Count link_bytes{};           ///< payload of the links, both directions
  Count internal_link_bytes{};  ///< between SSD controller and on-board switch, both directions

  Time array_busy() const { return read_busy + program_busy + erase_busy; }

  /// Pointers to all fields, for code that treats all of them the same way. The only list of the fields.
  static constexpr auto fields() {
    using T = DriveTotalsOf;
    return std::tuple(&T::elapsed, &T::read_busy, &T::program_busy, &T::erase_busy, &T::channel_busy, &T::to_host_busy,
                      &T::to_drive_busy, &T::from_controller_busy, &T::to_controller_busy, &T::fpga_dram_busy,
                      &T::page_ops, &T::channel_bytes, &T::retry_bytes, &T::programmed_bytes, &T::dram_bytes,
                      &T::engine_bytes, &T::macs, &T::neurons, &T::link_bytes, &T::internal_link_bytes);
  }

  DriveTotalsOf& operator+=(const DriveTotalsOf& o) {
    std::apply([&](auto... field) { ((this->*field += o.*field), ...); }, fields());
    return *this;
  }
  DriveTotalsOf& operator-=(const DriveTotalsOf& o) {
    std::apply([&](auto... field) { ((this->*field -= o.*field), ...); }, fields());
    return *this;
  }
  friend DriveTotalsOf operator+(DriveTotalsOf a, const DriveTotalsOf& b) { return a += b; }
  friend DriveTotalsOf operator-(DriveTotalsOf a, const DriveTotalsOf& b) { return a -= b; }
};

/// The counts of a drive, as integers.
using DriveTotals = DriveTotalsOf<std::uint64_t, SimTime>;

/// The same as real numbers, times in seconds. Estimates of sampled runs scale these.
using DriveWork = DriveTotalsOf<double, double>;

static_assert(sizeof(DriveWork) == std::tuple_size_v<decltype(DriveWork::fields())> * sizeof(double),
              "fields() names every field");

/// The same totals as real numbers, times in seconds.
inline DriveWork work_of(const DriveTotals& totals) {
  const auto number = [](auto value) {
    if constexpr (std::is_same_v<decltype(value), SimTime>) {
      return value.seconds();
    } else {
      return static_cast<double>(value);
    }
  };
  constexpr auto from = DriveTotals::fields();
  constexpr auto to = DriveWork::fields();
  DriveWork work;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    ((work.*std::get<i>(to) = number(totals.*std::get<i>(from))), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(from)>>());
  return work;
}

}  // namespace csdsim::csd_model
