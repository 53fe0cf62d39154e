#include "experiment/measure/endurance.h"

#include <fmt/format.h>

#include "nfc/core/reliability.h"
#include "scenario/presets.h"

namespace csdsim::experiment {
namespace {

/// Where the rated cycles are from.
std::string source_of(const csd_model::DeviceConfig& device) {
  const std::string cycles = std::to_string(device.flash.endurance_cycles());
  if (const scenario::Preset* preset = scenario::Presets::builtin().preset("device", device.preset)) {
    const config::Node* stated = config::find_path(preset->values, "flash.rated_cycles");
    if (stated != nullptr && stated->scalar == cycles)
      return fmt::format("preset {}, {}", device.preset, stated->origin.note);
  }
  if (device.flash.endurance_cycles() == nfc::kRatedCycles)
    return "assumed: common for 3D TLC; from a data sheet: bytes written x write amplification / bytes of flash";
  return "as the scenario says";
}

}  // namespace

std::string rated_cycles_text(const scenario::Scenario& s) {
  const csd_model::DeviceConfig& device = s.platform.device;
  return fmt::format("{} program/erase cycles ({})", device.flash.endurance_cycles(), source_of(device));
}

}  // namespace csdsim::experiment
