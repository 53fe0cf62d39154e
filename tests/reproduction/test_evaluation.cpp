// Rows and pictures from outcomes of points, without a simulation.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/config/diagnostics.h"
#include "reproduction/definition.h"
#include "reproduction/document.h"
#include "reproduction/evaluation.h"
#include "reproduction/row_text.h"

namespace test_evaluation {

using namespace csdsim;
using namespace csdsim::reproduction;
using Catch::Matchers::Contains;
using nlohmann::ordered_json;

namespace {

PointOutcome outcome(int batch, double tokens_per_s) {
  return {.config = {{"workload", {{"batch", batch}}}, {"system", {{"ratio", "1/8"}}}},
          .result = {{"metrics", {{"tokens_per_s", tokens_per_s}}},
                     {"stats", {{"fits", true}, {"drives", {{{"reads", {{"value", 7}, {"unit", "pages"}}}}}}}}},
          .error = {},
          .expected = false};
}

PointOutcome failure(bool expected) {
  return {.config = nullptr, .result = nullptr, .error = "does not fit", .expected = expected};
}

/// Points a, b, c, d with batches 1, 2, 4, 8.
Outcomes four(double a, double b, double c, PointOutcome d) {
  return {{"a", outcome(1, a)}, {"b", outcome(2, b)}, {"c", outcome(4, c)}, {"d", std::move(d)}};
}

Definition with_row(const std::string& row) {
  return read_definition(
      "title: t\nsource: s\nscenario: s.yaml\npoints: {a: {overrides: {}}, b: {overrides: {}}, "
      "c: {overrides: {}}, d: {overrides: {}}}\n"
      "rows:\n  - {id: r, metric: m, where: I, " +
          row +
          "}\ncurves: [{file: f, title: t, axis: workload.batch, metric: tokens_per_s, series: "
          "[{name: n, points: [a, b, c, d], relative_to: b}]}]\n",
      "d.yaml", "d");
}

RowResult result_of(const std::string& row, const Outcomes& outcomes) {
  return evaluate(with_row(row), ordered_json::object(), outcomes).rows.front();
}

}  // namespace

TEST_CASE("a number is compared with its tolerance, both ends included") {
  const Outcomes outcomes = four(10, 11, 12, outcome(8, 9));
  const RowResult at_the_end = result_of("stated: 10, tolerance: 10 %, value: b.tokens_per_s", outcomes);
  CHECK(at_the_end.simulated == 11);
  CHECK(*at_the_end.error == Approx(0.1));
  CHECK(at_the_end.verdict == Verdict::within);
  CHECK(result_of("stated: 10, tolerance: 9.9 %, value: b.tokens_per_s", outcomes).verdict == Verdict::outside);
  CHECK(*result_of("stated: 10, value: d.tokens_per_s", outcomes).error == Approx(-0.1));
  CHECK(result_of("stated: 10, value: d.tokens_per_s", outcomes).verdict == Verdict::unjudged);
  CHECK(result_of("stated: 10, value: d.tokens_per_s / 0", outcomes).verdict == Verdict::failed);
}

TEST_CASE("a tolerance in points is of the difference") {
  const Outcomes outcomes = four(10, 52, 48, outcome(8, 53));
  const auto verdict = [&](const std::string& point) {
    return result_of("stated: 50, unit: '%', tolerance: 2 points, value: " + point + ".tokens_per_s", outcomes).verdict;
  };
  CHECK(verdict("b") == Verdict::within);
  CHECK(verdict("c") == Verdict::within);
  CHECK(verdict("d") == Verdict::outside);
  const Definition definition = with_row("stated: 50, unit: '%', tolerance: 2 points, value: d.tokens_per_s");
  const ordered_json document = document_of(definition, evaluate(definition, ordered_json::object(), outcomes),
                                            outcomes, ordered_json::object(), ordered_json::object());
  const ordered_json& row = document["rows"][0];
  CHECK(row["error"].get<double>() == Approx(0.06));
  CHECK(row["tolerance"].is_null());
  CHECK(row["tolerance_points"] == 2);
  CHECK_THAT(text_of(document), Contains("+3.0 points") && Contains("2 points"));
}

TEST_CASE("a formula reaches metrics, statistics and truth values") {
  const Outcomes outcomes = four(10, 11, 12, outcome(8, 9));
  CHECK(result_of("stated: 7, value: a.stats.drives.0.reads + a.stats.fits", outcomes).simulated == 8);
  CHECK(result_of("stated: 7, value: a.metrics.tokens_per_s", outcomes).simulated == 10);
}

TEST_CASE("a row has a result in each column, from the points that the column changes and from all others") {
  const Definition definition = read_definition(
      "title: t\nsource: s\nscenario: s.yaml\npoints: {a: {overrides: {x: 1}}, b: {overrides: {}}}\n"
      "columns: [{name: other, title: another machine, overrides: {y: 2}, points: [a]}, {name: own, title: as it is}]\n"
      "rows:\n"
      "  - {id: r, metric: m, where: I, stated: 2, tolerance: 10 %, value: a.tokens_per_s / b.tokens_per_s}\n"
      "  - {id: s, metric: m, where: I, stated: 5, tolerance: 10 %, value: b.tokens_per_s}\n",
      "d.yaml", "d");
  REQUIRE(definition.points.size() == 3);
  CHECK(definition.points[2].name == "a-other");
  CHECK(definition.points[2].sets() == std::vector<std::string>{"x=1", "y=2"});

  const Outcomes outcomes{{"a", outcome(1, 10)}, {"b", outcome(2, 5)}, {"a-other", outcome(1, 20)}};
  const Evaluation evaluation = evaluate(definition, ordered_json::object(), outcomes);
  CHECK(evaluation.rows[0].simulated == 2);
  REQUIRE(evaluation.columns.size() == 2);
  CHECK(evaluation.columns[0][0].simulated == 4);
  CHECK(evaluation.columns[0][0].verdict == Verdict::outside);
  CHECK(evaluation.columns[1][0].verdict == Verdict::within);
  for (const std::vector<RowResult>& column : evaluation.columns) CHECK(column[1].simulated == 5);

  const ordered_json document =
      document_of(definition, evaluation, outcomes, ordered_json::object(), ordered_json::object());
  CHECK(document["rows"][0]["simulated"] == 2);
  CHECK(document["rows"][0]["columns"]["other"]["error"] == 1);
  CHECK(document["columns"][0]["overrides"] == ordered_json{{"y", "2"}});
  const std::string text = text_of(document);
  CHECK_THAT(text, Contains("another machine: y = 2\nas it is: the scenario as it is\n"));
  CHECK_THAT(text, Contains("do not agree with the paper, another machine:\n- r: stated 2, simulated 4"));
  CHECK_THAT(text, Contains("as it is: 2 of 2 results agree with the paper, 0 do not."));
  CHECK_THAT(csv_of(document), Contains("other_simulated,other_error,other_verdict,own_simulated"));

  const Outcomes missing{{"a", outcome(1, 10)}, {"b", outcome(2, 5)}, {"a-other", failure(false)}};
  const Evaluation failed = evaluate(definition, ordered_json::object(), missing);
  CHECK(failed.rows[0].verdict == Verdict::within);
  CHECK(failed.columns[0][0].remark == "point a-other failed");
}

TEST_CASE("a trend that holds gives what is stated, otherwise what is true instead") {
  const Outcomes outcomes = four(10, 11, 12, outcome(8, 9));
  const RowResult yes =
      result_of("stated: monotone, kind: trend, otherwise: no, holds: a.tokens_per_s < b.tokens_per_s", outcomes);
  CHECK(yes.simulated == "monotone");
  CHECK(*yes.error == 0);
  CHECK(yes.verdict == Verdict::holds);
  const RowResult no =
      result_of("stated: monotone, kind: trend, otherwise: mixed, holds: a.tokens_per_s > b.tokens_per_s", outcomes);
  CHECK(no.simulated == "mixed");
  CHECK(*no.error == 1);
  CHECK(no.verdict == Verdict::differs);
  CHECK(result_of("stated: true, kind: trend, holds: a.tokens_per_s > b.tokens_per_s", outcomes).simulated == false);
  CHECK(
      result_of("stated: 8, kind: trend, otherwise: none, holds: a.tokens_per_s < b.tokens_per_s", outcomes).verdict ==
      Verdict::holds);
}

TEST_CASE("an order that holds by less than 1 % is told apart") {
  const std::string row = "stated: true, kind: trend, holds: a.tokens_per_s < b.tokens_per_s";
  const RowResult clear = result_of(row, four(10, 10.11, 12, outcome(8, 9)));
  CHECK((clear.verdict == Verdict::holds && !clear.narrow));
  const RowResult close = result_of(row, four(10, 10.09, 12, outcome(8, 9)));
  CHECK((close.verdict == Verdict::holds && close.narrow));
  const RowResult no = result_of(row, four(10, 9.99, 12, outcome(8, 9)));
  CHECK((no.verdict == Verdict::differs && !no.narrow));
}

TEST_CASE("a verdict is not sure where a sample states an error that could change it") {
  Outcomes outcomes = four(10, 10.5, 12, outcome(8, 9));
  outcomes.at("b").result["metrics"]["relative_error_estimate"] = 0.04;
  const auto unsure = [&](const std::string& row) { return result_of(row, outcomes).unsure; };
  // The true value may be 10.08 to 10.92. All of it is within 10 % of 10 and outside 10 % of 9. A part of it is within
  // 6 % of 10, and a part within 10 % of 9.3.
  CHECK_FALSE(unsure("stated: 10, tolerance: 10 %, value: b.tokens_per_s"));
  CHECK(unsure("stated: 10, tolerance: 6 %, value: b.tokens_per_s"));
  CHECK(unsure("stated: 9.3, tolerance: 10 %, value: b.tokens_per_s"));
  CHECK_FALSE(unsure("stated: 9, tolerance: 10 %, value: b.tokens_per_s"));
  CHECK(unsure("stated: 1, tolerance: 6 %, value: b.tokens_per_s / a.tokens_per_s"));
  // A point that is simulated whole is what it is.
  CHECK_FALSE(unsure("stated: 10, tolerance: 0 %, value: a.tokens_per_s"));
  CHECK(unsure("stated: true, kind: trend, holds: b.tokens_per_s > 10.2"));
  CHECK(unsure("stated: true, kind: trend, holds: b.tokens_per_s > 10.7"));
  CHECK_FALSE(unsure("stated: true, kind: trend, holds: b.tokens_per_s > a.tokens_per_s"));
  const RowResult row = result_of("stated: 10, tolerance: 6 %, value: b.tokens_per_s", outcomes);
  CHECK(row.verdict == Verdict::within);
  CHECK(row.sample_error == 0.04);
  CHECK(result_of("stated: 10, tolerance: 6 %, value: a.tokens_per_s", outcomes).sample_error == 0);

  const auto document_rows = [&] {
    const Definition definition = with_row("stated: 10, tolerance: 6 %, value: b.tokens_per_s");
    return document_of(definition, evaluate(definition, ordered_json::object(), outcomes), outcomes,
                       ordered_json::object(), ordered_json::object())["rows"];
  };
  CHECK(verdict_text(document_rows()[0]) == "within, not sure: a sample states 4 %");
  CHECK_THAT(agreement_text(document_rows()), Contains("1 verdict is not sure"));

  // A sample with too few layers states no error.
  outcomes.at("b").result["metrics"] = {{"tokens_per_s", 10.5}, {"page_ops", 100}};
  outcomes.at("b").config["simulation"]["sampling"] = {{"layers", 2}};
  CHECK(document_rows()[0]["sample_error"].is_null());
  CHECK_THAT(agreement_text(document_rows()), Contains("samples of 1 are too small to state an error"));
  outcomes.at("b").config["simulation"]["sampling"] = "off";
  CHECK(document_rows()[0]["sample_error"] == 0);
}

TEST_CASE("drops are listed by series, small ones are not") {
  const std::string row =
      "stated: {n: [4]}, kind: trend, drops: {axis: workload.batch, metric: tokens_per_s, by: 10 %, series: [{name: n, "
      "points: [a, b, c, d]}]}";
  CHECK(result_of(row, four(10, 11, 9.8, outcome(8, 9))).simulated == ordered_json{{"n", {4}}});
  CHECK(result_of(row, four(10, 11, 9.8, outcome(8, 9))).verdict == Verdict::holds);
  CHECK(result_of(row, four(10, 11, 9.8, outcome(8, 8))).simulated == ordered_json{{"n", {4, 8}}});
  CHECK(result_of(row, four(10, 11, 9.8, failure(true))).simulated == ordered_json{{"n", {4}}});
  CHECK(result_of(row, four(10, 11, 9.8, failure(false))).verdict == Verdict::failed);
}

TEST_CASE("a trend has the figures that it was judged by") {
  using Figures = std::vector<std::pair<std::string, double>>;
  const Outcomes outcomes = four(10, 11, 9.8, failure(true));
  CHECK(result_of("stated: true, kind: trend, holds: b.tokens_per_s > 2 * a.tokens_per_s", outcomes).figures ==
        Figures{{"a.tokens_per_s", 10}, {"b.tokens_per_s", 11}});
  CHECK(result_of("stated: {n: [4]}, kind: trend, drops: {axis: workload.batch, metric: tokens_per_s, series: [{name: "
                  "n, points: [a, b, d]}]}",
                  outcomes)
            .figures == Figures{{"a.tokens_per_s", 10}, {"b.tokens_per_s", 11}});
  CHECK(result_of("stated: 10, value: b.tokens_per_s", outcomes).figures.empty());
}

TEST_CASE("rows that a constant was fitted on are counted apart") {
  const auto agreement = [](const std::string& row) {
    const Definition definition = with_row(row);
    const Outcomes outcomes = four(10, 20, 40, failure(true));
    return agreement_text(document_of(definition, evaluate(definition, ordered_json::object(), outcomes), outcomes,
                                      {{"version", "1"}}, {{"seed", 1}})["rows"]);
  };
  CHECK(agreement("stated: 20, tolerance: 5 %, value: b.tokens_per_s") ==
        "1 of 1 results agree with the paper, 0 do not.");
  CHECK(
      agreement("stated: 20, tolerance: 5 %, fitted: true, value: b.tokens_per_s") ==
      "0 of 0 results agree with the paper, 0 do not; 1 more confirm nothing, because constants were fitted on them.");
  CHECK(
      agreement("stated: 30, tolerance: 5 %, fitted: true, value: b.tokens_per_s") ==
      "0 of 0 results agree with the paper, 0 do not; 1 more confirm nothing, because constants were fitted on them (1 "
      "of them outside the bounds all the same).");
  CHECK(agreement("stated: 20, value: b.tokens_per_s") ==
        "0 of 0 results agree with the paper, 0 do not; 1 more have no bound and are not judged.");
}

TEST_CASE("the largest point that fits passes over points that fail as expected") {
  const std::string row = "stated: 4, tolerance: 0 %, largest: {axis: workload.batch, points: [a, c, d]}";
  CHECK(result_of(row, four(1, 1, 1, failure(true))).simulated == 4);
  CHECK(result_of(row, four(1, 1, 1, failure(true))).verdict == Verdict::within);
  CHECK(result_of(row, four(1, 1, 1, outcome(8, 1))).simulated == 8);
  CHECK(result_of(row, four(1, 1, 1, outcome(8, 1))).verdict == Verdict::outside);
  CHECK(result_of(row, four(1, 1, 1, failure(false))).simulated.is_null());
}

TEST_CASE("a row whose point failed has no value and says which point") {
  const RowResult result = result_of("stated: 1, value: a.tokens_per_s / d.tokens_per_s", four(1, 1, 1, failure(true)));
  CHECK(result.simulated.is_null());
  CHECK_FALSE(result.error);
  CHECK(result.verdict == Verdict::failed);
  CHECK(result.remark == "point d failed");
}

TEST_CASE("metrics, axes and constants that do not exist are located") {
  const auto message = [](const Definition& definition, const Outcomes& outcomes) -> std::string {
    try {
      evaluate(definition, {{"seed", 1}}, outcomes);
    } catch (const config::ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const Outcomes outcomes = four(1, 1, 1, outcome(8, 1));
  CHECK(message(with_row("stated: 1, value: a.token_per_s"), outcomes) ==
        "d.yaml:6:52: error: point a has no metric 'token_per_s' (did you mean tokens_per_s?)");
  CHECK(message(with_row("stated: 1, value: a.energy"), outcomes) ==
        "d.yaml:6:52: error: point a has no metric 'energy'; exists: tokens_per_s");
  CHECK_THAT(message(with_row("stated: 1, largest: {axis: workload.kind, points: [a]}"), outcomes),
             Contains("d.yaml:6:54: error: point a: 'workload.kind' is no number of its scenario"));
  Definition definition = with_row("stated: 1, value: a.tokens_per_s");
  definition.constants.emplace_back().path = "sead";
  CHECK_THAT(message(definition, outcomes), Contains("the scenario has no parameter 'sead'"));
  definition.constants.back().path = "seed";
  CHECK(evaluate(definition, {{"seed", 1}}, outcomes).constants.front() == 1);
  definition.constants.back().path = "system.ratio";
  definition.constants.back().point = "b";
  CHECK(evaluate(definition, {{"seed", 1}}, outcomes).constants.front() == "1/8");
}

TEST_CASE("lines of a picture leave out points that failed") {
  const Definition definition = with_row("stated: 1, value: a.tokens_per_s");
  const auto lines = evaluate(definition, ordered_json::object(), four(10, 20, 40, failure(true))).curves.front();
  REQUIRE(lines.size() == 1);
  REQUIRE(lines.front().points.size() == 3);
  CHECK(lines.front().points[2].name == "c");
  CHECK(lines.front().points[2].x == 4);
  CHECK(lines.front().points[2].y == 2);
}

TEST_CASE("the document has what the contract names, and text says what does not agree") {
  const Definition definition = with_row("stated: 10, tolerance: 5 %, note: why, value: b.tokens_per_s");
  const Outcomes outcomes = four(10, 20, 40, failure(true));
  const Evaluation evaluation = evaluate(definition, ordered_json::object(), outcomes);
  const ordered_json document = document_of(definition, evaluation, outcomes, {{"version", "1"}}, {{"seed", 1}});
  for (const char* const key : {"constants", "rows", "inconsistencies", "absent", "points", "curves", "build"})
    CHECK(document.contains(key));
  const ordered_json& row = document["rows"][0];
  CHECK(row["id"] == "r");
  CHECK(row["stated"] == 10);
  CHECK(row["simulated"] == 20);
  CHECK(row["error"] == 1);
  CHECK(row["verdict"] == "outside");
  CHECK(document["points"]["d"]["error"] == "does not fit");
  CHECK(document["points"]["a"]["metrics"]["tokens_per_s"] == 10);
  CHECK_THAT(csv_of(document), Contains("id,metric,unit,stated,simulated,error,tolerance") && Contains("\nr,m,,10,20"));
  CHECK_THAT(text_of(document), Contains("No constant was fitted.") &&
                                    Contains("Rows that do not agree with the paper:\n- r: stated 10, simulated 20"));
  const auto pictures = pictures_of(definition, evaluation);
  REQUIRE(pictures.size() == 1);
  CHECK(pictures[0].first == "f.html");
  CHECK_THAT(pictures[0].second, Contains(R"("name":"n")") && Contains("Chart.js"));
}

}  // namespace test_evaluation
