// The data sheet of a drive: what a vendor would print, measured on the simulated drive.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "scenario/scenario.h"

namespace csdsim::experiment {

struct DatasheetOptions {
  std::optional<std::string> model;  ///< preset of a model whose attention is measured, too
  /// Progress callback: `what` is measured next, after `done` of `total` measurements.
  std::function<void(std::string_view what, std::size_t done, std::size_t total)> progress = {};
};

/// Measures one drive of `scenario`; its workload, model and system do not matter. Returns
///   {name, preset, capacity_bytes, flash_bytes, rates, latencies, endurance[, attention], origin}.
/// Each of `rates`, `latencies` and `attention` is an array of objects with equal keys; what a row does not have is
/// null, and a row that this drive cannot run has the reason as `skipped`. Steady states are measured on a drive with
/// fewer and shorter blocks, the same share of spare flash and the same time of erases per page.
nlohmann::ordered_json datasheet(const scenario::Scenario& scenario, const DatasheetOptions& options = {});

/// Capacity and peaks of a drive in one line, without a simulation.
std::string peaks_text(const csd_model::DeviceConfig& device);

/// Tables for people.
std::string datasheet_text(const nlohmann::ordered_json& sheet);
/// One line per figure: {figure, value, unit, peak, bound_by}.
nlohmann::ordered_json datasheet_rows(const nlohmann::ordered_json& sheet);

}  // namespace csdsim::experiment
