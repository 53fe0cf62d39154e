#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/commands.h"
#include "app/figure.h"
#include "app/results.h"
#include "app/standard_output.h"
#include "base/error.h"
#include "experiment/experiments.h"
#include "report/files.h"
#include "report/html_page.h"
#include "reproduction/document.h"
#include "reproduction/page.h"
#include "scenario/axis_range.h"

namespace csdsim::app {

int report(const ReportArguments& arguments) {
  const std::filesystem::path& directory = arguments.directory;
  if (!std::filesystem::is_directory(directory))
    throw UserError(fmt::format("{}: is no folder; give the --out of a sweep or a run", directory.string()));
  const std::filesystem::path out = arguments.out.value_or(directory / "report.html");
  if (const auto folder = out.parent_path();
      !arguments.plot && !folder.empty() && !std::filesystem::is_directory(folder))
    throw UserError(fmt::format("{}: there is no folder {}; make it first", out.string(), folder.string()));
  if (const auto reproduced = directory / "reproduction.json"; !arguments.plot && std::filesystem::exists(reproduced)) {
    const nlohmann::ordered_json document = read_json(reproduced);
    reproduction::check_document(document, reproduced.string());
    report::write_file(out, reproduction::page_of(document));
    print_result(fmt::format("{}\n", out.string()));
    return 0;
  }
  std::vector<launch::SweepRow> rows = read_rows(directory);
  if (arguments.plot) {
    const nlohmann::ordered_json data = figure_data(rows, {.x = arguments.x, .y = arguments.y});
    draw_figure(data, *arguments.plot);
    if (!arguments.x || !arguments.y)
      print_message(
          fmt::format("shows {} over {}; --y draws another metric (csdsim describe metrics), --x over another axis\n",
                      data["y"]["name"].get<std::string>(), data["x"]["name"].get<std::string>()));
    print_result(fmt::format("{}\n", arguments.plot->string()));
    return 0;
  }
  report::Page page;
  for (launch::SweepRow& row : rows)
    page.points.push_back({std::move(row.axes), std::move(row.result), std::move(row.error)});
  const auto good = std::ranges::find_if(page.points, [](const report::PagePoint& p) { return p.error.empty(); });
  if (good == page.points.end())
    throw UserError(fmt::format("{}: no point has a result{}", directory.string(),
                                page.points.empty() ? "" : "; the first failed with: " + page.points.front().error));
  page.name = good->result.value("name", directory.filename().string());
  if (const auto origins = directory / kOriginsFile; std::filesystem::exists(origins))
    page.origins = read_json(origins);
  if (const auto question = directory / kQuestionFile; std::filesystem::exists(question))
    page.question = report::read_file(question);
  for (const scenario::DescribedMetric& metric : experiment::all_metrics(*experiment::builtin_registries()))
    page.meanings[metric.info.name] = metric.info.meaning;
  report::write_file(out, report::html_page(page, scenario::number_of));
  print_result(fmt::format("{}\n", out.string()));
  return 0;
}

}  // namespace csdsim::app
