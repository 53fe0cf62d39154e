#include <catch2/catch.hpp>
#include <vector>

#include "report/eval_plot.h"
#include "report/svg.h"

namespace test_svg {

using namespace csdsim::report;
using Catch::Matchers::Contains;

TEST_CASE("shapes appear in the order in which they were added, texts escaped") {
  Svg svg(100, 50);
  svg.text({1, 2}, "a < b & c", SvgAnchor::end, true);
  svg.line({0, 0}, {10.25, 5}, {.colour = "#444", .width = 2, .dashed = true});
  svg.polyline(std::vector<SvgPoint>{{0, 0}, {1, 2}}, {.colour = "red"});
  svg.circle({3, 4}, 2.5, "blue");
  svg.bar({5, 6}, 7, 8, "green");
  CHECK(svg.document() ==
        "<svg xmlns='http://www.w3.org/2000/svg' width='100' height='50' viewBox='0 0 100 50' "
        "font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n"
        "<text x='1.0' y='2.0' text-anchor='end' font-weight='bold'>a &lt; b &amp; c</text>\n"
        "<line x1='0.0' y1='0.0' x2='10.2' y2='5.0' stroke='#444' stroke-width='2' stroke-dasharray='5 4'/>\n"
        "<polyline points='0.0,0.0 1.0,2.0' fill='none' stroke='red'/>\n"
        "<circle cx='3.0' cy='4.0' r='2.5' fill='blue'/>\n"
        "<rect x='5.0' y='6.0' width='7.0' height='8.0' fill='green'/>\n</svg>\n");
}

TEST_CASE("the picture of an evaluation has a line and a legend entry per method") {
  const nlohmann::ordered_json document{
      {"metrics", {{"dense_perplexity", 20.0}}},
      {"rows",
       {{{"method", "dense"}, {"kept_mean", 1.0}, {"traffic_mean", 1.0}, {"perplexity", 20.0}},
        {{"method", "window"}, {"kept_mean", 0.25}, {"traffic_mean", 0.25}, {"perplexity", 40.0}},
        {{"method", "window"}, {"kept_mean", 0.5}, {"traffic_mean", 0.5}, {"perplexity", 25.0}}}}};
  const std::string svg = eval_svg(document);
  CHECK_THAT(svg, Contains(">window</text>") && Contains(">dense</text>") && Contains(">1/4</text>"));
  CHECK_THAT(svg, Contains("<polyline points='60.0,") && Contains(" 250.0,"));
  CHECK_THAT(svg, !Contains("fp16 scores"));
}

TEST_CASE("methods have the same colour in all panels, also where they have no points") {
  const auto row = [](const char* method, double perplexity, const nlohmann::ordered_json& recall) {
    return nlohmann::ordered_json{{"method", method},
                                  {"kept_mean", 0.5},
                                  {"traffic_mean", 0.5},
                                  {"perplexity", perplexity},
                                  {"top_k_recall", recall}};
  };
  const nlohmann::ordered_json document{{"metrics", {{"dense_perplexity", 20.0}}},
                                        {"rows", {row("fp16", 21, nullptr), row("int4", 22, 0.75)}}};
  const std::string svg = eval_svg(document);
  CHECK_THAT(svg, Contains(">tokens chosen as by fp16 scores</text>"));
  // The legend names fp16 first; the only point of the panel is at three quarters of its height, in int4's colour.
  const std::size_t fp16 = svg.find(">fp16</text>"), int4 = svg.find(">int4</text>");
  const std::string colour = svg.substr(svg.rfind("stroke='", int4) + 8, 7);
  CHECK(svg.substr(svg.rfind("stroke='", fp16) + 8, 7) != colour);
  CHECK_THAT(svg, Contains("cy='107.5' r='2.5' fill='" + colour + "'"));
}

}  // namespace test_svg
