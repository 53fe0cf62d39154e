// Charts as one self-contained HTML file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace csdsim::report {

struct ChartPoint {
  double x = 0, y = 0;
};

struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points = {};
  bool dashed = false;
};

/// Lines over numbers, or bars of names.
struct Chart {
  std::string title;
  std::string x_title = {}, y_title = {};
  bool x_log = false, y_log = false;    ///< where a logarithm is shown, points at or below 0 are left out
  std::vector<ChartLine> lines = {};    ///< lines of the same name have the same colour in all charts of a page
  std::vector<std::string> names = {};  ///< if not empty, bars with the values
  std::vector<double> values = {};
};

/// The page, drawn by Chart.js. It needs no other file and no network. The same charts make the same bytes.
std::string chart_page(std::string_view title, const std::vector<Chart>& charts);

}  // namespace csdsim::report
