#include "report/page_parts.h"

#include <fmt/format.h>

#include "base/error.h"
#include "report/markup.h"
#include "report/page_files.h"

namespace csdsim::report {
namespace {

/// JSON inside a script element, which must not contain "</script" nor "<!--". "<" stands inside texts only.
std::string within_script(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

}  // namespace

std::string filled_page(std::string_view file, std::string_view title, const nlohmann::ordered_json& data,
                        const std::string& script, std::map<std::string_view, std::string> parts) {
  parts.insert({{"@TITLE@", escaped(title)},
                {"@STYLE@", std::string(page_file("page.css"))},
                {"@DATA@", within_script(data.dump())},
                {"@CHARTS@", std::string(page_file("chart.min.js"))},
                {"@SCRIPT@", script}});
  const std::string_view page = page_file(file);
  std::map<std::size_t, std::string_view> places;  // places of the marks, so that what is put in is not searched
  for (const auto& [mark, text] : parts) {
    const std::size_t at = page.find(mark);
    if (at == std::string_view::npos) throw InternalError(fmt::format("{} has no {}", file, mark));
    places[at] = mark;
  }
  std::string html;
  std::size_t from = 0;
  for (const auto& [at, mark] : places) {
    html += page.substr(from, at - from);
    html += parts.at(mark);
    from = at + mark.size();
  }
  return html += page.substr(from);
}

}  // namespace csdsim::report
