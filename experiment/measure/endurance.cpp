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

std::string beyond_slc_cache(const scenario::Scenario& s, double bytes_per_drive) {
  const std::optional<Bytes>& cache = s.platform.device.flash.slc_cache;
  if (!cache || bytes_per_drive <= double(cache->value)) return "";
  return fmt::format(
      "A drive was written {:.4g} GB. All of it is simulated at the rate of its SLC cache, which holds {:.4g} GB "
      "(flash.slc_cache): a real drive is slower beyond that, unless it empties its cache meanwhile.",
      bytes_per_drive * 1e-9, double(cache->value) * 1e-9);
}

}  // namespace csdsim::experiment
