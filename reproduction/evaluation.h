// Compares what the points of a paper gave with what the paper states.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reproduction/definition.h"

namespace csdsim::reproduction {

/// What is known of a point after its run.
struct PointOutcome {
  nlohmann::ordered_json config;  ///< effective configuration; null if it could not be read
  nlohmann::ordered_json result;  ///< {metrics, breakdown, stats}; null if the point failed
  std::string error;              ///< the message with which it failed; empty otherwise
  bool expected = false;          ///< the definition says that the point may fail in this way
};
using Outcomes = std::map<std::string, PointOutcome>;

/// How a row compares with the paper. `failed`: a point that it needs has failed.
enum class Verdict : std::uint8_t { within, outside, holds, differs, unjudged, failed };
std::string_view to_string(Verdict verdict);

struct RowResult {
  nlohmann::ordered_json simulated;  ///< result, in the type of Row::stated; null if there is none
  std::optional<double> error;       ///< simulated / stated - 1; trends: 0 as stated, 1 not
  Verdict verdict = Verdict::unjudged;
  /// What the judgement of a trend is about: POINT.METRIC and value. Empty for a number, which says it itself.
  std::vector<std::pair<std::string, double>> figures;
  /// The trend holds, but would not if one of its figures were 1 % larger or smaller.
  bool narrow = false;
  /// Largest relative error that the samples of the row's points state; infinite where one states none, 0 where all are
  /// simulated whole.
  double sample_error = 0;
  /// The verdict would be another if one of the row's figures were as far off as its sample states.
  bool unsure = false;
  std::string remark;  ///< why there is no value; empty if there is one
};

/// One line of a picture.
struct CurveLine {
  std::string name;
  struct Point {
    std::string name;
    double x = 0, y = 0;
  };
  std::vector<Point> points;  ///< without those that failed
};

struct Evaluation {
  std::vector<RowResult> rows;                    ///< as Definition::rows
  std::vector<std::vector<RowResult>> columns;    ///< as Definition::columns: their rows
  std::vector<nlohmann::ordered_json> constants;  ///< values, as Definition::constants
  std::vector<std::vector<CurveLine>> curves;     ///< as Definition::curves
};

/// `scenario` is the effective configuration of the paper's scenario. Throws config::ConfigError with the place of
/// every metric, axis and constant that does not exist.
Evaluation evaluate(const Definition& definition, const nlohmann::ordered_json& scenario, const Outcomes& outcomes);

}  // namespace csdsim::reproduction
