// Plots lines over one parameter.
#pragma once

#include <string>
#include <vector>

#include "report/svg.h"

namespace csdsim::report {

struct PlotLine {
  std::string name;
  std::vector<SvgPoint> points;  ///< x greater than 0, y at least 0
};

struct LinePlot {
  std::string title;
  std::string x_title;
  std::string y_title;
  bool y_log = false;      ///< points with y = 0 are left out
  bool x_decades = false;  ///< ticks of the x axis at 1, 2 and 5 times powers of ten, instead of at every point
  std::vector<PlotLine> lines;
};

/// Returns a standalone SVG: one line with markers per PlotLine, and a legend. The x axis is logarithmic with a tick at
/// every x of a point or at fixed places, the y axis linear from 0 or logarithmic with ticks at 1, 2 and 5 times powers
/// of ten.
std::string line_plot_svg(const LinePlot& plot);

}  // namespace csdsim::report
