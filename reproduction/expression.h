// Arithmetic over the metrics of points: "100 * (1 - dense_b64.tokens_per_s / flexgen_b64.tokens_per_s)".
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/formula.h"

namespace csdsim::reproduction {

/// The name of a metric in an expression.
struct MetricName {
  std::string point;   ///< before the first dot
  std::string metric;  ///< after it: a metric, or a path into the result document ("resources.luts.share")
  std::string text() const { return point + "." + metric; }
};

/// A formula whose names are POINT.METRIC.
class Expression {
 public:
  /// Throws UserError with the position for what is not a formula, and for a name that is not POINT.METRIC.
  explicit Expression(std::string text);

  const std::string& text() const { return formula_.text(); }
  /// Each name once, sorted.
  const std::vector<MetricName>& names() const { return names_; }
  /// Throws what `value` throws. Infinite or not a number after a division by 0.
  double evaluate(const std::function<double(const MetricName&)>& value) const;

 private:
  Formula formula_;
  std::vector<MetricName> names_;
};

/// True if `name` can stand for a point in an expression: a small letter, then small letters, digits and underscores.
bool is_point_name(std::string_view name);

}  // namespace csdsim::reproduction
