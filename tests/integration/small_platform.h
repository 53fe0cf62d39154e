// The platform of scenarios in tests: small drives, an A6000 and a Xeon.
#pragma once

#include <string>

namespace csdsim::test {

/// The beginning of a scenario with this name. Sections and platform.device.* may be added with --set.
inline std::string small_platform(const std::string& name) {
  return "csdsim: 1\nname: " + name + R"(
platform:
  gpu: {preset: a6000}
  host: {preset: xeon-5320}
  device:
    flash: {channels: 4, dies_per_channel: 2, planes_per_die: 2, blocks_per_plane: 96, pages_per_block: 32, page_size: 4 KiB}
    dram: {capacity: 64 MiB}
)";
}

}  // namespace csdsim::test
