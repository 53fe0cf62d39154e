#include "report/page_parts.h"

#include <fmt/format.h>

#include <map>

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
                        const std::string& script) {
  const std::map<std::string_view, std::string> parts = {{"@TITLE@", escaped(title)},
                                                         {"@STYLE@", std::string(page_file("page.css"))},
                                                         {"@DATA@", within_script(data.dump())},
                                                         {"@CHARTS@", std::string(page_file("chart.min.js"))},
                                                         {"@SCRIPT@", script}};
  std::string html(page_file(file));
  // From the end, so that what is put in is not searched.
  for (const std::string_view mark : {"@SCRIPT@", "@CHARTS@", "@DATA@", "@STYLE@", "@TITLE@"}) {
    const std::size_t at = html.find(mark);
    if (at == std::string::npos) throw InternalError(fmt::format("{} has no {}", file, mark));
    html.replace(at, mark.size(), parts.at(mark));
  }
  return html;
}

}  // namespace csdsim::report
