// The parts of a drive that serve commands and may hold them up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace csdsim {

/// Softmax shares the attention kernels with the products, and is counted apart from them.
enum class DriveStation : std::uint8_t {
  controller,     ///< the cores that decode commands, and the pipeline behind them
  lookup_cores,   ///< the cores that look up pages
  dram,           ///< the port of controller DRAM
  link_to_drive,  ///< the drive's own link, by direction
  link_to_host,
  from_controller,  ///< the internal link of a SmartSSD, by direction
  to_controller,
  fpga_dram,
  shared_links,  ///< behind the drive's link: those that it shares with others
  page_buffers,  ///< page buffers of the flash controllers
  flash_arrays,
  flash_channels,
  filters,  ///< filters of the flash controllers
  kernels,  ///< products of the attention kernels
  softmax,  ///< exponentials of the attention kernels
  scoring,  ///< the scoring unit
  argtopk
};
inline constexpr std::size_t kDriveStations = 17;
inline constexpr std::array<std::string_view, kDriveStations> kDriveStationNames{
    "controller",    "lookup_cores", "dram",         "link_to_drive", "link_to_host", "from_controller",
    "to_controller", "fpga_dram",    "shared_links", "page_buffers",  "flash_arrays", "flash_channels",
    "filters",       "kernels",      "softmax",      "scoring",       "argtopk"};

/// One value per station.
template <class T>
struct PerStation {
  std::array<T, kDriveStations> values{};

  T& operator[](DriveStation station) { return values[static_cast<std::size_t>(station)]; }
  const T& operator[](DriveStation station) const { return values[static_cast<std::size_t>(station)]; }

  PerStation& operator+=(const PerStation& o) {
    for (std::size_t i = 0; i < kDriveStations; ++i) values[i] += o.values[i];
    return *this;
  }
  PerStation& operator-=(const PerStation& o) {
    for (std::size_t i = 0; i < kDriveStations; ++i) values[i] -= o.values[i];
    return *this;
  }
  friend PerStation operator-(PerStation a, const PerStation& b) { return a -= b; }
  T sum() const {
    T all{};
    for (const T& value : values) all += value;
    return all;
  }
  bool operator==(const PerStation&) const = default;
};

}  // namespace csdsim
