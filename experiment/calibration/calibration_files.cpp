#include <fmt/format.h>

#include <algorithm>

#include "base/config/node.h"
#include "base/param.h"
#include "experiment/calibration/calibration.h"

namespace csdsim::experiment {
namespace {

using nlohmann::ordered_json;

/// Where a value of the start is from, as src and cite of a preset.
std::pair<std::string, std::string> source_of(const config::Origin& origin) {
  const std::size_t colon = origin.note.find(": ");
  if (origin.layer == config::Layer::preset && colon != std::string::npos && source_from(origin.note.substr(0, colon)))
    return {origin.note.substr(0, colon), origin.note.substr(colon + 2)};
  return {"assumed", fmt::format("{}, which states no source", origin.text())};
}

/// The leaves of a map as lines "key: {v, src, cite}".
std::string lines_of(const ordered_json& values, std::size_t indent) {
  std::string text;
  for (const auto& [key, value] : values.items()) {
    text += fmt::format("{:{}}{}:", "", indent, key);
    if (value.contains("v"))
      text += fmt::format(" {{v: {}, src: {}, cite: {}}}\n", value["v"].dump(), value["src"].get<std::string>(),
                          value["cite"].dump());
    else
      text += "\n" + lines_of(value, indent + 2);
  }
  return text;
}

ordered_json::json_pointer pointer_to(std::string path) {
  std::ranges::replace(path, '.', '/');
  return ordered_json::json_pointer("/" + path);
}

}  // namespace

std::string preset_of(const MeasuredDrive& drive, const Fit& fit, const scenario::Resolved& start,
                      const std::string& name, const std::string& fio_file) {
  constexpr std::string_view kDevice = "platform.device.";
  const ordered_json config = drive.scenario_with(fit.values);
  const auto leaf = [&](const std::string& path, const std::string& source, const std::string& cite) {
    return ordered_json{{"v", config[pointer_to(path)]}, {"src", source}, {"cite", cite}};
  };
  ordered_json values = ordered_json::object();
  const auto put = [&](const std::string& path, const ordered_json& value) {
    values[pointer_to(path.substr(kDevice.size()))] = value;
  };
  for (const auto& [path, origin] : start.origins) {
    if (!path.starts_with(kDevice) || origin.layer == config::Layer::builtin) continue;
    if (path == "platform.device.preset" || path == "platform.device.count") continue;
    if (!config.contains(pointer_to(path))) continue;  // has no effect
    const auto [source, cite] = source_of(origin);
    put(path, leaf(path, source, cite));
  }
  for (std::size_t i = 0; i < fit.values.size(); ++i) {
    const FitRange& range = fit.ranges[i];
    const DriveParameter& p = drive.parameters()[i];
    put(p.path, leaf(p.path, "calibrated",
                     fmt::format("{}; alone {} to {} fit as well", fio_file, p.text(range.low), p.text(range.high))));
  }
  return fmt::format(
      "# Written by csdsim calibrate. In a scenario: presets: [FILE], platform: {{device: {{preset: {}}}}}\n"
      "kind: device\npresets:\n  {}:\n    doc: {}\n    values:\n{}",
      name, name,
      ordered_json(fmt::format("Calibrated to {} points of {}, within {:.1f} %.", drive.points().size(), fio_file,
                               100 * fit.error))
          .dump(),
      lines_of(values, 6));
}

std::string scenario_of(const MeasuredDrive& drive, const Fit& fit, const std::string& name,
                        const std::string& preset_file) {
  const ordered_json config = drive.scenario_with(fit.values);
  std::string text = fmt::format(
      "# Written by csdsim calibrate: the measured points on the calibrated drive. csdsim sweep runs them.\n"
      "csdsim: 1\nname: {}\nseed: {}\npresets: [{}]\nplatform: {{device: {{preset: {}}}}}\nworkload: {}\n",
      name, config["seed"].dump(), ordered_json(preset_file).dump(), name, config["workload"].dump());
  if (!config.contains("sweep")) return text;
  text += "sweep:\n  zip:\n";
  for (const auto& [path, values] : config["sweep"]["zip"].items())
    text += fmt::format("    {}: {}\n", path, values.dump());
  return text;
}

}  // namespace csdsim::experiment
