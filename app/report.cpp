#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/commands.h"
#include "base/error.h"
#include "launch/sweep_store.h"
#include "report/files.h"
#include "report/html_page.h"

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;

ordered_json read_json(const std::filesystem::path& path) {
  try {
    return ordered_json::parse(report::read_file(path));
  } catch (const ordered_json::parse_error&) {
    throw UserError(fmt::format("{}: is no JSON file", path.string()));
  }
}

std::vector<report::PagePoint> points_of_sweep(const std::filesystem::path& directory) {
  std::vector<report::PagePoint> points;
  for (launch::SweepRow& row : launch::stored_rows(directory)) {
    if (row.result.is_null() && row.error.empty()) row.error = "no result is stored";
    points.push_back({std::move(row.axes), std::move(row.result), std::move(row.error)});
  }
  return points;
}

}  // namespace

int report(const ReportArguments& arguments) {
  const std::filesystem::path& directory = arguments.directory;
  if (!std::filesystem::is_directory(directory))
    throw UserError(fmt::format("{}: is no folder; give the --out of a sweep or a run", directory.string()));
  const bool sweep = std::filesystem::exists(directory / "results.sqlite");
  if (!sweep && !std::filesystem::exists(directory / "result.json"))
    throw UserError(fmt::format("{}: holds neither the results.sqlite of a sweep nor the result.json of a run",
                                directory.string()));
  report::Page page;
  if (sweep)
    page.points = points_of_sweep(directory);
  else
    page.points.push_back({{}, read_json(directory / "result.json"), ""});
  const auto good = std::ranges::find_if(page.points, [](const report::PagePoint& p) { return p.error.empty(); });
  if (good == page.points.end())
    throw UserError(fmt::format("{}: no point has a result{}", directory.string(),
                                page.points.empty() ? "" : "; the first failed with: " + page.points.front().error));
  if (!good->result.is_object() || !good->result.contains("metrics"))
    throw UserError(fmt::format("{}: result.json is no result of csdsim run", directory.string()));
  page.name = good->result.value("name", directory.filename().string());
  if (const auto origins = directory / kOriginsFile; std::filesystem::exists(origins))
    page.origins = read_json(origins);
  const std::filesystem::path out = arguments.out.value_or(directory / "report.html");
  report::write_file(out, report::html_page(page));
  fmt::print("{}\n", out.string());
  return 0;
}

}  // namespace csdsim::app
