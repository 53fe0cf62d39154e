#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/standard_output.h"
#include "base/error.h"
#include "experiment/experiments.h"
#include "report/chart_page.h"
#include "report/csv.h"
#include "report/files.h"
#include "report/table.h"
#include "report/text.h"

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;
using report::short_number;

std::string milliseconds(const ordered_json& seconds) { return fmt::format("{:.3f} ms", seconds.get<double>() * 1e3); }

std::string machine_table(const ordered_json& roofline) {
  report::Table table({"machine", "peak FLOP/s", "memory B/s", "ridge FLOP/B"});
  for (const auto& [name, machine] : roofline["machines"].items())
    table.add_row({name, short_number(machine["flops_per_s"]), short_number(machine["bytes_per_s"]),
                   short_number(machine["ridge_flops_per_byte"])});
  return table.to_text();
}

std::string operator_table(const ordered_json& roofline) {
  std::vector<std::string> header{"operator", "FLOP", "bytes", "FLOP/B"};
  for (const auto& [name, machine] : roofline["machines"].items()) header.push_back(name);
  report::Table table(header);
  for (const auto& [name, op] : roofline["operators"].items()) {
    std::vector<std::string> row{name, short_number(op["flops"]), short_number(op["bytes"]),
                                 fmt::format("{:.2f}", op["flops_per_byte"].get<double>())};
    for (const auto& [machine, seconds] : op["seconds"].items()) row.push_back(milliseconds(seconds));
    table.add_row(row);
  }
  std::vector<std::string> sum{"decode step", "", "", ""};
  for (const auto& [machine, roofs] : roofline["machines"].items())
    sum.push_back(milliseconds(roofline["decode_step_s"][machine]));
  table.add_row(sum);
  return table.to_text();
}

std::string roofline_text(const ordered_json& roofline) {
  std::string text = machine_table(roofline) + "\n" + operator_table(roofline);
  if (const auto both = roofline["decode_step_s"].find("gpu_and_drives"); both != roofline["decode_step_s"].end())
    text += fmt::format("\nAttention in the drives, everything else on the GPU: {} per step.", milliseconds(*both));
  return text + fmt::format(
                    "\nOne step of {} sequences at {} tokens of context, all layers. Each machine alone, with weights, "
                    "K and V in "
                    "its own memory (drives: in flash), whether they fit or not; links cost nothing.\n",
                    roofline["batch"].get<int>(), roofline["context"].get<int>());
}

/// One line per operator.
std::string csv_of(const ordered_json& roofline) {
  ordered_json rows;
  for (const auto& [name, op] : roofline["operators"].items()) {
    ordered_json row{{"operator", name}};
    for (const char* figure : {"flops", "bytes", "flops_per_byte"}) row[figure] = op[figure];
    for (const auto& [machine, seconds] : op["seconds"].items()) row[machine + "_s"] = seconds;
    rows.push_back(std::move(row));
  }
  return report::csv_rows(rows);
}

/// A roof per machine, and a vertical line per operator from the lowest roof to the highest.
report::Chart chart_of(const ordered_json& roofline, const std::string& name) {
  double least = 0.5, most = 1;
  for (const auto& [machine, roof] : roofline["machines"].items())
    most = std::max(most, 4 * roof["ridge_flops_per_byte"].get<double>());
  for (const auto& [op, work] : roofline["operators"].items())
    least = std::min(least, work["flops_per_byte"].get<double>() / 2);
  report::Chart chart{.title = name + ": decode step",
                      .x_title = "FLOP per byte",
                      .y_title = "attainable FLOP/s",
                      .x_log = true,
                      .y_log = true};
  const auto attainable = [](const ordered_json& roof, double intensity) {
    return std::min(roof["flops_per_s"].get<double>(), intensity * roof["bytes_per_s"].get<double>());
  };
  for (const auto& [machine, roof] : roofline["machines"].items()) {
    report::ChartLine line{.name = machine};
    for (const double x : {least, roof["ridge_flops_per_byte"].get<double>(), most})
      line.points.push_back(report::ChartPoint{x, attainable(roof, x)});
    chart.lines.push_back(std::move(line));
  }
  for (const auto& [op, work] : roofline["operators"].items()) {
    report::ChartLine line{.name = op};
    const auto x = work["flops_per_byte"].get<double>();
    for (const auto& [machine, roof] : roofline["machines"].items())
      line.points.push_back(report::ChartPoint{x, attainable(roof, x)});
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

}  // namespace

int roofline(const RooflineArguments& arguments) {
  const scenario::Scenario s = experiment::load_scenario(arguments.scenario, arguments.overrides).base.scenario;
  const ordered_json document = s.workload->planned(s);
  if (!document.contains("stats") || !document["stats"].contains("roofline"))
    throw UserError(
        fmt::format("{}: workload: a roofline needs a generation whose lengths the scenario states (batch, "
                    "input_tokens, output_tokens)",
                    arguments.scenario.string()));
  const ordered_json& roofline = document["stats"]["roofline"];
  if (arguments.out) {
    report::write_file(*arguments.out / "roofline.json", roofline.dump(2) + "\n");
    report::write_file(*arguments.out / "roofline.html", report::chart_page("Roofline", {chart_of(roofline, s.name)}));
  }
  if (arguments.format == Format::json)
    print_result(fmt::format("{}\n", roofline.dump(2)));
  else if (arguments.format == Format::csv)
    print_result(csv_of(roofline));
  else
    print_result(roofline_text(roofline));
  return 0;
}

}  // namespace csdsim::app
