#include "reproduction/evaluation.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/config/diagnostics.h"
#include "base/text.h"
#include "report/result_lookup.h"

namespace csdsim::reproduction {

using nlohmann::ordered_json;
using report::axis_value;
using report::find_path;
using report::metric_names;
using report::metric_of;

namespace {

class Evaluator {
 public:
  Evaluator(const Definition& definition, const ordered_json& scenario, const Outcomes& outcomes)
      : d_(definition), scenario_(scenario), outcomes_(outcomes) {}

  Evaluation run() {
    Evaluation all;
    for (const Constant& constant : d_.constants) all.constants.push_back(value_of(constant));
    all.rows = rows();
    for (const Column& column : d_.columns) {
      column_ = &column;
      all.columns.push_back(rows());
    }
    column_ = nullptr;
    for (const Curve& curve : d_.curves) all.curves.push_back(lines_of(curve));
    diagnostics_.throw_if_any();
    return all;
  }

 private:
  /// A row has no value because of the outcome of a point.
  struct Unavailable {
    std::string point;
  };
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  std::vector<RowResult> rows() {
    std::vector<RowResult> results;
    for (const Row& row : d_.rows) results.push_back(result_of(row));
    return results;
  }

  /// The outcome of a point in the column that is evaluated.
  const PointOutcome& outcome(const std::string& point) const {
    return outcomes_.at(column_ == nullptr ? point : column_->point(point));
  }
  bool failed(const std::string& point) const { return outcome(point).result.is_null(); }

  ordered_json value_of(const Constant& constant) {
    if (!constant.point.empty() && outcome(constant.point).config.is_null()) return nullptr;
    const ordered_json& config = constant.point.empty() ? scenario_ : outcome(constant.point).config;
    if (const ordered_json* const value = find_path(config, constant.path)) return *value;
    // Constants of the models are no parameters; results state them.
    if (!constant.point.empty())
      if (const ordered_json* const value = find_path(outcome(constant.point).result, constant.path)) return *value;
    diagnostics_.error(constant.origin, fmt::format("the scenario has no parameter '{}'", printable(constant.path)));
    return nullptr;
  }

  /// Relative error that the sample of a point states. 0: the point is simulated whole. Infinite: the sample states
  /// none.
  static double sample_error(const PointOutcome& point) {
    if (const auto stated = metric_of(point.result, "relative_error_estimate")) return *stated;
    const ordered_json* const sampling = find_path(point.config, "simulation.sampling");
    const bool is_simulated = metric_of(point.result, "page_ops").has_value();
    return is_simulated && sampling != nullptr && *sampling != "off" ? kUnknown : 0;
  }

  /// 1 after reporting that the metric does not exist. Throws Unavailable.
  double metric(const MetricName& name, const config::Origin& origin) {
    if (failed(name.point)) throw Unavailable{name.point};
    const ordered_json& result = outcome(name.point).result;
    if (const auto number = metric_of(result, name.metric)) {
      sample_errors_[name.text()] = sample_error(outcome(name.point));
      return *number * (name.text() == changed_.figure ? changed_.factor : 1);
    }
    const std::vector<std::string> known = metric_names(result);
    const std::string hint = did_you_mean(name.metric, known);
    diagnostics_.error(origin, fmt::format("point {} has no metric '{}'{}", name.point, printable(name.metric),
                                           hint.empty() ? "; exists: " + join(known) : hint));
    return 1;
  }

  double axis(const std::string& point, const std::string& path, const config::Origin& origin) {
    if (const auto number = axis_value(outcome(point).config, path)) return *number;
    diagnostics_.error(origin, fmt::format("point {}: '{}' is no number of its scenario", point, printable(path)));
    return 0;
  }

  double evaluate(const Expression& expression, const config::Origin& origin) {
    return expression.evaluate([&](const MetricName& name) { return metric(name, origin); });
  }

  ordered_json found(const ValueFinding& finding, const Row& row, RowResult&) {
    const double value = evaluate(finding.value, row.origin);
    return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
  }

  ordered_json found(const HoldsFinding& finding, const Row& row, RowResult& result) {
    for (const MetricName& name : finding.condition.names())
      result.figures.emplace_back(name.text(), metric(name, row.origin));
    if (evaluate(finding.condition, row.origin) != 0) return row.stated;
    if (row.stated.is_boolean()) return !row.stated.get<bool>();
    return finding.otherwise;
  }

  /// Points that failed in the expected way are passed over.
  ordered_json found(const DropsFinding& finding, const Row& row, RowResult& result) {
    ordered_json drops = ordered_json::object();
    for (const PointSeries& series : finding.series) {
      drops[series.name] = ordered_json::array();
      std::optional<double> before;
      for (const std::string& point : series.points) {
        if (failed(point) && outcome(point).expected) continue;
        const MetricName name{point, finding.metric};
        const double now = metric(name, row.origin);
        result.figures.emplace_back(name.text(), now);
        if (before && now < *before * (1 - finding.by.value()))
          drops[series.name].push_back(as_count(axis(point, finding.axis, row.origin)));
        before = now;
      }
    }
    return drops;
  }

  ordered_json found(const LargestFinding& finding, const Row& row, RowResult&) {
    std::optional<double> largest;
    for (const std::string& point : finding.points) {
      if (failed(point) && !outcome(point).expected) throw Unavailable{point};
      if (failed(point)) continue;
      const double value = axis(point, finding.axis, row.origin);
      largest = std::max(largest.value_or(value), value);
    }
    return largest ? as_count(*largest) : ordered_json(nullptr);
  }

  /// Batches and drives are written without a decimal point.
  static ordered_json as_count(double value) {
    if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
    return value;
  }

  static bool is_within(const Tolerance& tolerance, double stated, double simulated) {
    const double difference = std::abs(simulated - stated);
    const double error = tolerance.points || stated == 0 ? difference : difference / std::abs(stated);
    // A part in 10^9 for the rounding of doubles.
    return error <= tolerance.most.value() + 1e-9;
  }

  RowResult judged(const Row& row) {
    RowResult result;
    try {
      result.simulated = std::visit([&](const auto& finding) { return found(finding, row, result); }, row.finding);
    } catch (const Unavailable& missing) {
      result.verdict = Verdict::failed;
      result.remark =
          fmt::format("point {} failed", column_ == nullptr ? missing.point : column_->point(missing.point));
      return result;
    }
    if (result.simulated.is_null()) {
      result.verdict = Verdict::failed;
      result.remark = "there is no number";
    } else if (computes_number(row.finding)) {
      const double stated = row.stated.get<double>();
      const double simulated = result.simulated.get<double>();
      result.error = stated == 0 ? std::abs(simulated) : simulated / stated - 1;
      if (row.tolerance)
        result.verdict = is_within(*row.tolerance, stated, simulated) ? Verdict::within : Verdict::outside;
    } else {
      // The order of the series does not count.
      const bool same = nlohmann::json(result.simulated) == nlohmann::json(row.stated);
      result.error = same ? 0 : 1;
      result.verdict = same ? Verdict::holds : Verdict::differs;
    }
    return result;
  }

  RowResult result_of(const Row& row) {
    sample_errors_.clear();
    RowResult result = judged(row);
    if (result.verdict == Verdict::failed || result.verdict == Verdict::unjudged || !diagnostics_.ok()) return result;
    const std::map<std::string, double> figures = sample_errors_;
    const auto changes = [&](const std::string& figure, double step) {
      for (const double factor : {1 - step, 1 + step}) {
        changed_ = {figure, factor};
        const Verdict verdict = judged(row).verdict;
        changed_ = {};
        if (verdict != result.verdict) return true;
      }
      return false;
    };
    constexpr double kNarrow = 0.01;
    const bool is_order = result.verdict == Verdict::holds && std::holds_alternative<HoldsFinding>(row.finding);
    for (const auto& [figure, error] : figures) {
      result.sample_error = std::max(result.sample_error, error);
      result.narrow |= is_order && changes(figure, kNarrow);
      result.unsure |= error > 0 && std::isfinite(error) && changes(figure, error);
    }
    return result;
  }

  std::vector<CurveLine> lines_of(const Curve& curve) {
    std::vector<CurveLine> lines;
    for (const PointSeries& series : curve.series) {
      CurveLine line{.name = series.name, .points = {}};
      const std::string& shown = series.metric.empty() ? curve.metric : series.metric;
      if (!series.relative_to.empty() && failed(series.relative_to)) continue;
      const double unit = series.relative_to.empty() ? 1 : metric({series.relative_to, shown}, curve.origin);
      for (const std::string& point : series.points) {
        if (failed(point)) continue;
        line.points.push_back({.name = point,
                               .x = axis(point, curve.axis, curve.origin),
                               .y = metric({point, shown}, curve.origin) / unit});
      }
      lines.push_back(std::move(line));
    }
    return lines;
  }

  const Definition& d_;
  const ordered_json& scenario_;
  const Outcomes& outcomes_;
  const Column* column_ = nullptr;  ///< none: the points as they are
  /// Figures (POINT.METRIC) that the row uses, with sample_error() of their points.
  std::map<std::string, double> sample_errors_;
  /// A figure is multiplied by this factor, to see whether the verdict changes. Empty: none is.
  struct {
    std::string figure;
    double factor = 1;
  } changed_;
  config::Diagnostics diagnostics_;
};

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::within:
      return "within";
    case Verdict::outside:
      return "outside";
    case Verdict::holds:
      return "as stated";
    case Verdict::differs:
      return "differs";
    case Verdict::unjudged:
      return "not judged";
    case Verdict::failed:
      return "no value";
  }
  return "";
}

Evaluation evaluate(const Definition& definition, const ordered_json& scenario, const Outcomes& outcomes) {
  return Evaluator(definition, scenario, outcomes).run();
}

}  // namespace csdsim::reproduction
