#include "report/svg.h"

#include <fmt/format.h>

#include <iterator>

#include "report/markup.h"

namespace csdsim::report {
namespace {

std::string attributes(const SvgStroke& stroke) {
  std::string text = fmt::format("stroke='{}'", stroke.colour);
  if (stroke.width != 1) text += fmt::format(" stroke-width='{:g}'", stroke.width);
  if (stroke.dashed) text += " stroke-dasharray='5 4'";
  return text;
}

}  // namespace

Svg::Svg(double width, double height)
    : shapes_(fmt::format(
          "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 {0:.0f} {1:.0f}' "
          "font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n",
          width, height)) {}

void Svg::text(SvgPoint at, std::string_view content, SvgAnchor anchor, bool bold) {
  static constexpr std::string_view kAnchors[] = {"", " text-anchor='middle'", " text-anchor='end'"};
  fmt::format_to(std::back_inserter(shapes_), "<text x='{:.1f}' y='{:.1f}'{}{}>{}</text>\n", at.x, at.y,
                 kAnchors[static_cast<int>(anchor)], bold ? " font-weight='bold'" : "", escaped(content));
}

void Svg::line(SvgPoint from, SvgPoint to, const SvgStroke& stroke) {
  fmt::format_to(std::back_inserter(shapes_), "<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' {}/>\n", from.x,
                 from.y, to.x, to.y, attributes(stroke));
}

void Svg::polyline(std::span<const SvgPoint> points, const SvgStroke& stroke) {
  shapes_ += "<polyline points='";
  for (std::size_t i = 0; i < points.size(); ++i) {
    fmt::format_to(std::back_inserter(shapes_), "{}{:.1f},{:.1f}", i == 0 ? "" : " ", points[i].x, points[i].y);
  }
  fmt::format_to(std::back_inserter(shapes_), "' fill='none' {}/>\n", attributes(stroke));
}

void Svg::circle(SvgPoint centre, double radius, std::string_view colour) {
  fmt::format_to(std::back_inserter(shapes_), "<circle cx='{:.1f}' cy='{:.1f}' r='{:g}' fill='{}'/>\n", centre.x,
                 centre.y, radius, colour);
}

void Svg::bar(SvgPoint corner, double width, double height, std::string_view colour) {
  fmt::format_to(std::back_inserter(shapes_),
                 "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='{}'/>\n", corner.x, corner.y, width,
                 height, colour);
}

void Svg::frame(SvgPoint corner, double width, double height, const SvgStroke& stroke) {
  fmt::format_to(std::back_inserter(shapes_),
                 "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='none' {}/>\n", corner.x, corner.y,
                 width, height, attributes(stroke));
}

}  // namespace csdsim::report
