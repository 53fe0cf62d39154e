#include "host_runtime/core/place.h"

#include <fmt/format.h>

namespace csdsim::host {

std::string gpu_name(std::uint32_t index) { return index == 0 ? "gpu" : fmt::format("gpu {}", index); }

std::string place_name(Place place) {
  switch (place.kind) {
    case PlaceKind::gpu:
      return gpu_name(place.index);
    case PlaceKind::host:
      return "host";
    case PlaceKind::drive_kv:
      return fmt::format("drive {}", place.index);
    case PlaceKind::drive_blocks:
      return fmt::format("drive {} blocks", place.index);
    case PlaceKind::file:
      return fmt::format("files of drive {}", place.index);
  }
  return "?";
}

}  // namespace csdsim::host
