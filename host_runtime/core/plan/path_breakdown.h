// Time of the critical path by component.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/units.h"
#include "contracts/drive_station.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

enum class PathPart : std::uint8_t {
  gpu,          ///< GPU operators
  host,         ///< host processor, its work for drive commands included
  kv_link,      ///< KV cache, queries and attention outputs on a link, to and from drives and files included
  other_link,   ///< weights and activations on a link, likewise
  flash,        ///< flash channels and arrays of a drive
  engine,       ///< attention engine of a drive
  drive_other,  ///< the rest of a drive's time: firmware, queues, DRAM
};
inline constexpr std::size_t kPathParts = 7;
constexpr std::array<std::string_view, kPathParts> kPathPartNames{"gpu",   "host",   "kv_link",    "other_link",
                                                                  "flash", "engine", "drive_other"};

/// The same time by what an operation waited for: the resources of operations (that of drives is what no station of the
/// drive worked in), the host's work for drive commands, and the stations of drives.
struct PathResource {
  std::size_t index = 0;

  static constexpr PathResource of(ResourceKind kind) { return {static_cast<std::size_t>(kind)}; }
  static constexpr PathResource host_io() { return {kResourceKinds}; }
  static constexpr PathResource of(DriveStation station) {
    return {kResourceKinds + 1 + static_cast<std::size_t>(station)};
  }
};
inline constexpr std::size_t kPathResources = kResourceKinds + 1 + kDriveStations;

/// Time by part and by resource, separately for operations inside decoder layers, which scale with the number of
/// layers, and for operations outside.
struct PathBreakdown {
  std::array<SimTime, kPathParts> layered{};
  std::array<SimTime, kPathParts> fixed{};
  std::array<SimTime, kPathResources> layered_resources{};
  std::array<SimTime, kPathResources> fixed_resources{};

  void add(PathPart part, bool in_layer, SimTime t) {
    (in_layer ? layered : fixed)[static_cast<std::size_t>(part)] += t;
  }
  void add(PathResource resource, bool in_layer, SimTime t) {
    (in_layer ? layered_resources : fixed_resources)[resource.index] += t;
  }
  SimTime total() const {
    SimTime sum;
    for (std::size_t i = 0; i < kPathParts; ++i) sum += layered[i] + fixed[i];
    return sum;
  }
  friend PathBreakdown operator-(PathBreakdown a, const PathBreakdown& b) {
    for (std::size_t i = 0; i < kPathParts; ++i) {
      a.layered[i] -= b.layered[i];
      a.fixed[i] -= b.fixed[i];
    }
    for (std::size_t i = 0; i < kPathResources; ++i) {
      a.layered_resources[i] -= b.layered_resources[i];
      a.fixed_resources[i] -= b.fixed_resources[i];
    }
    return a;
  }
  bool operator==(const PathBreakdown&) const = default;
};

}  // namespace csdsim::host
