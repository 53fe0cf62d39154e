#include "reproduction/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "report/markup.h"
#include "report/page_files.h"
#include "report/page_parts.h"
#include "report/text.h"
#include "reproduction/row_text.h"

namespace csdsim::reproduction {
namespace {

using nlohmann::ordered_json;
using report::escaped;

/// A text of the document, as HTML.
std::string html_of(const ordered_json& object, const char* key) { return escaped(cell(object[key])); }

std::string with_unit(const ordered_json& row, const char* key) {
  const std::string unit = row[key].is_null() ? "" : html_of(row, "unit");
  return unit.empty() ? html_of(row, key) : fmt::format("{} {}", html_of(row, key), unit);
}

const char* css_of(const ordered_json& row) {
  const Side side = side_of(row);
  return side == Side::disagrees ? "bad" : side == Side::unjudged || row["fitted"].get<bool>() ? "none" : "good";
}

/// Where simulated lies beside stated: from half to double, the bounds of the row as a band.
std::string track(const ordered_json& row) {
  if (!row["stated"].is_number() || !row["simulated"].is_number()) return "";
  const double stated = row["stated"].get<double>();
  const double ratio = row["simulated"].get<double>() / stated;
  if (!std::isfinite(ratio) || ratio <= 0) return "";
  const auto place = [](double r) { return 50 + 50 * std::clamp(std::log2(r), -1.0, 1.0); };
  const ordered_json& points = row["tolerance_points"];
  std::string band, bounds;
  if (!points.is_null() || !row["tolerance"].is_null()) {
    const double bound = points.is_null() ? row["tolerance"].get<double>() : points.get<double>() / std::abs(stated);
    const double from = place(std::max(1 - bound, 1e-3));
    band = fmt::format(R"(<i class="band" style="left: {:.4g}%; width: {:.4g}%"></i>)", from, place(1 + bound) - from);
    bounds = fmt::format(", bounds -{0:.3g} and +{0:.3g} %", 100 * bound);
  }
  return fmt::format(
      R"(<div class="track" title="simulated / stated: {:.3g}{}"><i class="middle"></i>{}<i class="dot {}{}" style="left: {:.4g}%"></i></div>)",
      ratio, bounds, band, css_of(row), std::abs(std::log2(ratio)) > 1 ? " beyond" : "", place(ratio));
}

/// What the judgement of a trend is about: the condition and its figures, folded where they are many.
std::string figures(const ordered_json& row) {
  constexpr std::size_t kMostUnfolded = 4;
  const ordered_json& all = row["figures"];
  if (all.empty()) return "";
  std::string lines;
  for (const auto& [name, value] : all.items()) {
    const std::string metric = name.substr(name.rfind('.') + 1);
    lines += fmt::format("<br>{}: {}", escaped(name), report::metric_text(metric, value.get<double>()));
  }
  const std::string text = fmt::format("<small>{}{}</small>", html_of(row, "expression"), lines);
  if (all.size() <= kMostUnfolded) return "<br>" + text;
  return fmt::format("<details><summary>{} figures</summary>{}</details>", all.size(), text);
}

std::string list(const char* kind, const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += fmt::format("<li>{}</li>\n", item);
  return fmt::format("<{0}>\n{1}</{0}>\n", kind, text);
}

std::string table(const char* id, const std::vector<std::string>& heading, const std::string& rows) {
  std::string head;
  for (const std::string& name : heading) head += fmt::format("<th class=\"axis\">{}</th>", escaped(name));
  return fmt::format("<div class=\"scroll whole\"><table id=\"{}\">\n<tr>{}</tr>\n{}</table></div>\n", id, head, rows);
}

std::string differences(const Shown& column, bool one_of_several) {
  std::vector<std::string> items;
  for (const ordered_json& row : column.rows)
    if (side_of(row) == Side::disagrees)
      items.push_back(fmt::format("<a href=\"#{}\">{}: {}</a>: stated {}, simulated {}. {}", html_of(row, "id"),
                                  html_of(row, "where"), html_of(row, "metric"), with_unit(row, "stated"),
                                  with_unit(row, "simulated"), html_of(row, "note")));
  if (items.empty()) return "";
  return fmt::format("<h2 class=\"differences\">What does not agree{}</h2>\n",
                     one_of_several ? ", " + escaped(column.title) : "") +
         list("ul", items);
}

std::string constants(const ordered_json& all) {
  if (all.empty()) return "<h2>Constants</h2>\n<p>No constant was fitted.</p>\n";
  std::string rows;
  for (const ordered_json& c : all) {
    const std::string group = c["group"];
    const char* const kind = group == "fitted"     ? "fitted, of the system that the paper presents"
                             : group == "baseline" ? "fitted, of a system that it is compared with"
                                                   : "an input, from the paper or another source: no row confirms it";
    const std::string unit = html_of(c, "unit");
    rows += fmt::format(
        R"(<tr><td class="text">{}</td><td class="axis">{}{}</td><td class="text">{}</td><td class="text">{}</td><td class="axis">{}</td></tr>)"
        "\n",
        html_of(c, "meaning"), html_of(c, "value"), unit.empty() ? "" : fmt::format(" ({})", unit),
        html_of(c, "fitted_on"), kind, html_of(c, "path"));
  }
  return "<h2>Constants</h2>\n<p class=\"note\">These values were chosen so that some figures of the paper come out. "
         "The rows they were fitted on confirm nothing; the others are predictions.</p>\n" +
         table("constants", {"what it is", "value", "fitted on", "kind", "parameter"}, rows);
}

/// Simulated, error, dot and verdict of a row in a column.
std::string result_cells(const ordered_json& row) {
  return fmt::format(R"(<td class="text">{}{}</td><td>{}</td><td>{}</td><td class="{}">{}</td>)",
                     with_unit(row, "simulated"), figures(row), error_text(row), track(row), css_of(row),
                     verdict_text(row));
}

std::string rows(const ordered_json& document, const std::vector<Shown>& columns) {
  std::vector<std::string> places;
  for (const ordered_json& row : document["rows"])
    if (const std::string place = row["where"]; std::ranges::find(places, place) == places.end())
      places.push_back(place);
  const auto contradictions = [&](const ordered_json& row) {
    std::string links;
    for (std::size_t i = 0; i < document["inconsistencies"].size(); ++i)
      if (const ordered_json& of = document["inconsistencies"][i]["rows"]; std::ranges::find(of, row["id"]) != of.end())
        links += fmt::format("<a href=\"#contradiction{0}\">contradiction {0}</a> ", i + 1);
    return links;
  };
  std::string text;
  for (const std::string& place : places) {
    text += fmt::format("<tr class=\"place\"><th class=\"axis\" colspan=\"{}\">{}</th></tr>\n", 3 + 4 * columns.size(),
                        escaped(place));
    for (std::size_t i = 0; i < document["rows"].size(); ++i) {
      const ordered_json& row = document["rows"][i];
      if (row["where"] != place) continue;
      std::string results, notes;
      for (const Shown& column : columns) {
        results += result_cells(column.rows[i]);
        const std::string note = html_of(column.rows[i], "note");
        if (notes.find(note) == std::string::npos) notes += (notes.empty() ? "" : " ") + note;
      }
      text += fmt::format(
          R"(<tr id="{0}"><td class="text" title="{1}">{2}<br><small>{0}</small></td><td class="text">{3}</td>{4}<td class="text">{5}{6}</td></tr>)"
          "\n",
          html_of(row, "id"), html_of(row, "expression"), html_of(row, "metric"), with_unit(row, "stated"), results,
          contradictions(row), notes);
    }
  }
  std::vector<std::string> heading{"result", "stated"}, changes;
  for (const Shown& column : columns) {
    heading.insert(heading.end(), {column.title, "error", "half … same … double", "verdict"});
    changes.push_back(fmt::format("{}: {}", escaped(column.title), escaped(column.overrides)));
  }
  heading.emplace_back("remarks");
  return "<h2>Stated against simulated</h2>\n<p class=\"note\">The dot is simulated over stated, from half to double; "
         "the band has the bounds within which a row counts as agreement. A hollow dot lies further out.</p>\n" +
         (columns.size() > 1 ? list("ul", changes) : "") + table("rows", heading, text);
}

std::string texts(const ordered_json& document) {
  std::string text;
  if (const ordered_json& all = document["inconsistencies"]; !all.empty()) {
    text += "<h2>Contradictions in the paper</h2>\n<ol>\n";
    for (std::size_t i = 0; i < all.size(); ++i)
      text += fmt::format("<li id=\"contradiction{}\">{}</li>\n", i + 1, html_of(all[i], "text"));
    text += "</ol>\n";
  }
  std::vector<std::string> absent;
  for (const ordered_json& each : document["absent"])
    absent.push_back(fmt::format("{}: {}", html_of(each, "id"), html_of(each, "why")));
  return absent.empty() ? text : text + "<h2>Results without a row</h2>\n" + list("ul", absent);
}

}  // namespace

std::string page_of(const ordered_json& document) {
  const auto simulated = std::ranges::count_if(
      document["points"], [](const ordered_json& point) { return point["simulated"].get<bool>(); });
  const std::string title = document["title"];
  const std::string header = fmt::format("<h1 id=\"title\">{}</h1>\n<p id=\"source\">{}: csdsim reproduce {}</p>\n",
                                         escaped(title), html_of(document, "source"), html_of(document, "paper"));
  const std::vector<Shown> columns = shown(document);
  const bool several = columns.size() > 1;
  std::string body = "<p id=\"summary\">";
  for (const Shown& column : columns)
    body += fmt::format("{}{} ", several ? escaped(column.title) + ": " : "", agreement_text(column.rows));
  body += fmt::format("{} constants; {} configurations simulated by csdsim {}.</p>\n", document["constants"].size(),
                      simulated, html_of(document["build"], "version"));
  for (const Shown& column : columns) body += differences(column, several);
  body += constants(document["constants"]) + rows(document, columns) + texts(document);
  const std::string script = fmt::format("{}\n{}\n{}", report::page_file("helpers.js"),
                                         report::page_file("chart_page.js"), report::page_file("reproduction.js"));
  return report::filled_page("reproduction.html", title, document["curves"], script,
                             {{"@HEADER@", header}, {"@BODY@", body}});
}

}  // namespace csdsim::reproduction
