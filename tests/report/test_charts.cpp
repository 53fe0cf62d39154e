#include <catch2/catch.hpp>
#include <vector>

#include "report/chart_page.h"
#include "report/eval_plot.h"

namespace test_charts {

using namespace csdsim::report;
using nlohmann::ordered_json;

namespace {

/// What the script of a page reads.
ordered_json data_of(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const std::size_t at = page.find(begin) + begin.size();
  return ordered_json::parse(page.substr(at, page.find("</script>", at) - at));
}

const ChartLine& line(const Chart& chart, const std::string& name) {
  for (const ChartLine& one : chart.lines)
    if (one.name == name) return one;
  FAIL("no line " << name);
  return chart.lines.front();
}

}  // namespace

TEST_CASE("a page holds its charts, its library and no link to anything else") {
  const std::string page =
      chart_page("a < b </script>", {{.title = "t </script>",
                                      .x_title = "x",
                                      .y_log = true,
                                      .lines = {{.name = "l", .points = {{1, 2}, {0, 3}, {4, 0}}}}},
                                     {.title = "bars", .names = {"p", "q"}, .values = {5, 6}}});
  using Catch::Matchers::Contains;
  CHECK_THAT(page, Contains("<title>a &lt; b &lt;/script&gt;</title>") && Contains("Chart.js") && !Contains("@DATA@") &&
                       !Contains("src="));
  const ordered_json data = data_of(page);
  REQUIRE(data.size() == 2);
  CHECK(data[0]["title"] == "t </script>");
  CHECK(data[0]["lines"][0]["points"] == ordered_json({{1.0, 2.0}, {0.0, 3.0}}));  // no 0 on a logarithmic axis
  CHECK(data[1]["names"] == ordered_json({"p", "q"}));
  CHECK(data[1]["values"] == ordered_json({5.0, 6.0}));
}

TEST_CASE("the charts of an evaluation have a line per method and the level of dense attention") {
  const ordered_json document{
      {"metrics", {{"dense_perplexity", 20.0}}},
      {"rows",
       {{{"method", "dense"}, {"kept_mean", 1.0}, {"traffic_mean", 1.0}, {"perplexity", 20.0}},
        {{"method", "window"}, {"kept_mean", 0.5}, {"traffic_mean", 0.4}, {"perplexity", 25.0}},
        {{"method", "window"}, {"kept_mean", 0.25}, {"traffic_mean", 0.2}, {"perplexity", 40.0}},
        {{"method", "dense"}, {"kv_bits", 4}, {"kept_mean", 1.0}, {"traffic_mean", 0.3}, {"perplexity", 21.0}}}}};
  const std::vector<Chart> charts = eval_charts(document);
  REQUIRE(charts.size() == 2);  // over the tokens kept and over the traffic; no row has recall
  const std::vector<ChartPoint>& kept = line(charts[0], "window").points;
  REQUIRE(kept.size() == 2);
  CHECK((kept[0].x == 0.25 && kept[0].y == 40 && kept[1].x == 0.5 && kept[1].y == 25));
  CHECK(line(charts[1], "window").points[0].x == 0.2);
  CHECK(line(charts[1], "dense, 4-bit K and V").points[0].x == 0.3);
  const ChartLine& dense = line(charts[0], "dense");
  CHECK(dense.dashed);
  CHECK((dense.points.front().y == 20 && dense.points.front().x == 0.25 && dense.points.back().x == 1));
  CHECK((charts[0].x_log && charts[0].y_log));
}

TEST_CASE("methods have a line in all charts, also where they have no points, so that colours agree") {
  const auto row = [](const char* method, double perplexity, const ordered_json& recall) {
    return ordered_json{{"method", method},
                        {"kept_mean", 0.5},
                        {"traffic_mean", 0.5},
                        {"perplexity", perplexity},
                        {"top_k_recall", recall}};
  };
  const ordered_json document{{"metrics", {{"dense_perplexity", 20.0}}},
                              {"rows", {row("fp16", 21, nullptr), row("int4", 22, 0.75)}}};
  const std::vector<Chart> charts = eval_charts(document);
  REQUIRE(charts.size() == 4);
  CHECK(charts[1].title == "tokens chosen as by fp16 scores");
  CHECK(line(charts[1], "fp16").points.empty());
  CHECK(line(charts[1], "int4").points.front().y == 0.75);
}

}  // namespace test_charts
