// Builds pictures as SVG text. Lengths are in pixels, y grows downwards.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace csdsim::report {

struct SvgPoint {
  double x = 0, y = 0;
};

struct SvgStroke {
  std::string_view colour;
  double width = 1;
  bool dashed = false;
};

/// Colours of lines, in the order in which plots use them; after the last comes the first again.
inline constexpr std::string_view kLineColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b",
                                                    "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#000000"};
/// Lines of a grid behind a plot.
inline constexpr SvgStroke kGridLine{.colour = "#ddd"};

enum class SvgAnchor { start, middle, end };

/// A picture on a white background. Shapes are added from back to front.
class Svg {
 public:
  Svg(double width, double height);

  void text(SvgPoint at, std::string_view content, SvgAnchor anchor = SvgAnchor::start, bool bold = false);
  void line(SvgPoint from, SvgPoint to, const SvgStroke& stroke);
  void polyline(std::span<const SvgPoint> points, const SvgStroke& stroke);
  void circle(SvgPoint centre, double radius, std::string_view colour);
  /// A filled rectangle; `corner` is its upper left one.
  void bar(SvgPoint corner, double width, double height, std::string_view colour);
  /// The outline of a rectangle.
  void frame(SvgPoint corner, double width, double height, const SvgStroke& stroke);

  /// The whole document.
  std::string document() const { return shapes_ + "</svg>\n"; }

 private:
  std::string shapes_;
};

}  // namespace csdsim::report
