// A figure of a sweep for a paper, drawn by matplotlib.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/sweep_store.h"

namespace csdsim::app {

struct FigureOptions {
  std::optional<std::string> x;  ///< axis: path or its end; default: the last one with several values
  std::optional<std::string> y;  ///< metric; default: figure_metric()
};

/// Default metric of a figure: the headline of the results. For services it is the 99th percentile of the time to the
/// first token.
std::string figure_metric(const nlohmann::ordered_json& metrics);

/// What the figure shows: a line for each value of the other axes over the numbers of an axis, or bars over its names.
/// Throws UserError for an axis or a metric that the rows lack.
nlohmann::ordered_json figure_data(const std::vector<launch::SweepRow>& rows, const FigureOptions& options);

/// Draws it. Throws UserError for another kind of file, and without Python and matplotlib.
void draw_figure(const nlohmann::ordered_json& data, const std::filesystem::path& file);

}  // namespace csdsim::app
