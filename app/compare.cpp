#include "report/compare.h"
#include "app/standard_output.h"

#include <fmt/format.h>

#include "app/commands.h"
#include "app/results.h"
#include "base/error.h"
#include "report/csv.h"
#include "report/files.h"

namespace csdsim::app {
namespace {

std::vector<report::ComparedPoint> points_of(const std::filesystem::path& path) {
  std::vector<report::ComparedPoint> points;
  for (launch::SweepRow& row : read_rows(path))
    if (row.error.empty()) points.push_back({std::move(row.axes), std::move(row.result)});
  if (points.empty()) throw UserError(fmt::format("{}: no point has a result", path.string()));
  return points;
}

}  // namespace

int compare(const CompareArguments& arguments) {
  const nlohmann::ordered_json comparison = report::compare_results(points_of(arguments.a), points_of(arguments.b));
  if (comparison["points"] == 0)
    throw UserError(fmt::format("{} and {} have no point in common: their axes differ", arguments.a.string(),
                                arguments.b.string()));
  if (arguments.out) report::write_file(*arguments.out, comparison.dump(2) + "\n");
  if (arguments.format == Format::json)
    print_result(fmt::format("{}\n", comparison.dump(2)));
  else if (arguments.format == Format::csv)
    print_result(report::csv_rows(comparison["metrics"]));
  else
    print_result(report::comparison_text(comparison));
  const bool changed = !comparison["metrics"].empty() || !comparison["metrics_only_in_a"].empty() ||
                       !comparison["metrics_only_in_b"].empty();
  const bool fails = arguments.fail_on == "change"  ? changed
                     : arguments.fail_on == "worse" ? !comparison["summary"]["worse"].empty()
                                                    : false;
  return fails ? 1 : 0;
}

}  // namespace csdsim::app
