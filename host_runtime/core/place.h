// A place of bytes: memory of a GPU or the host, a namespace of a drive, or files.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/address.h"

namespace csdsim::host {

using DriveIndex = StrongId<struct DriveIndexTag>;  ///< drive of the platform, from 0

enum class PlaceKind : std::uint8_t { gpu, host, drive_kv, drive_blocks, file };
inline constexpr std::size_t kPlaceKinds = 5;
constexpr std::array<std::string_view, kPlaceKinds> kPlaceNames{
    "GPU memory", "host memory", "the KV namespace of the drives", "the block namespace of the drives",
    "files on the drives"};

/// `index` distinguishes GPUs, or drives; a host has one memory. Where it does not matter which one, it is 0.
struct Place {
  PlaceKind kind = PlaceKind::gpu;
  std::uint32_t index = 0;
  constexpr auto operator<=>(const Place&) const = default;

  static constexpr Place gpu(std::uint32_t index = 0) { return {PlaceKind::gpu, index}; }
  static constexpr Place host() { return {PlaceKind::host, 0}; }
  static constexpr Place drive_kv(DriveIndex d = {}) { return {PlaceKind::drive_kv, d.value}; }
  static constexpr Place drive_blocks(DriveIndex d = {}) { return {PlaceKind::drive_blocks, d.value}; }
  static constexpr Place file(DriveIndex d = {}) { return {PlaceKind::file, d.value}; }

  constexpr bool on_gpu() const { return kind == PlaceKind::gpu; }
  constexpr bool in_host() const { return kind == PlaceKind::host; }
};

/// "gpu" (the first one), "gpu 1".
std::string gpu_name(std::uint32_t index);

/// "gpu 1", "host", "drive 3", "drive 3 blocks", "files of drive 3".
std::string place_name(Place place);

}  // namespace csdsim::host
