#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <optional>

#include "app/commands.h"
#include "app/point_lines.h"
#include "app/standard_output.h"
#include "base/config/diagnostics.h"
#include "base/error.h"
#include "base/text.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "launch/input_files.h"
#include "launch/interrupts.h"
#include "launch/point_runner.h"
#include "report/files.h"
#include "reproduction/document.h"
#include "reproduction/evaluation.h"
#include "reproduction/papers.h"
#include "reproduction/selection.h"

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;
using reproduction::Outcomes;
using reproduction::PointDefinition;
using reproduction::PointOutcome;

/// The points of a paper: those that fail before a run, those that are only planned, and the runs of the others.
class PaperRun {
 public:
  PaperRun(const reproduction::Definition& definition, std::filesystem::path scenario,
           const ReproduceArguments& arguments, std::filesystem::path directory)
      : definition_(definition),
        scenario_(std::move(scenario)),
        arguments_(arguments),
        directory_(std::move(directory)) {}

  /// Reads the scenario of every point. Throws config::ConfigError with the mistakes of all of them.
  void load();
  /// Runs what has to be simulated; equal configurations run once. Returns the smallest exit status of the points that
  /// failed unexpectedly.
  int run();

  const Outcomes& outcomes() const { return outcomes_; }

 private:
  struct Run {
    launch::Point point;
    scenario::Scenario scenario;
    std::vector<std::string> names;  ///< points with this configuration
  };

  void load_point(const PointDefinition& point, config::Diagnostics& diagnostics);
  /// True if the definition expects the point to fail with this message.
  static bool expects(const PointDefinition& point, const std::string& message) {
    return !point.expected_error.empty() && message.find(point.expected_error) != std::string::npos;
  }
  const PointDefinition& point(const std::string& name) const;
  void print_progress(const launch::PointEvent& event);
  int take_results(const std::vector<launch::SweepRow>& rows, int status);

  const reproduction::Definition& definition_;
  const std::filesystem::path scenario_;
  const ReproduceArguments& arguments_;
  const std::filesystem::path directory_;
  std::vector<Run> runs_;
  std::map<std::uint64_t, std::size_t> run_of_;  ///< by fingerprint
  launch::InputFiles inputs_;
  Outcomes outcomes_;
};

void PaperRun::load() {
  config::Diagnostics diagnostics;
  for (const PointDefinition& each : definition_.points) load_point(each, diagnostics);
  diagnostics.throw_if_any();
}

void PaperRun::load_point(const PointDefinition& each, config::Diagnostics& diagnostics) {
  PointOutcome& outcome = outcomes_[each.name];
  std::vector<std::string> sets = arguments_.overrides;
  const std::vector<std::string> own = each.sets();
  sets.insert(sets.end(), own.begin(), own.end());
  std::optional<scenario::Scenario> loaded;
  try {
    loaded = experiment::load_scenario(scenario_, sets).base.scenario;
    const scenario::Scenario& s = *loaded;
    outcome.config = scenario::effective_config(s);
    if (each.planned) {
      outcome.result = s.workload->planned(s);
      return;
    }
  } catch (const config::ConfigError& error) {
    outcome.error = error.what();
    outcome.expected = expects(each, outcome.error);
    if (!outcome.expected)
      for (const std::string& message : error.messages())
        diagnostics.error(each.origin, fmt::format("point {}: {}", each.name, message));
    return;
  }
  const std::uint64_t same = fingerprint(*loaded, inputs_);
  const auto [entry, is_new] = run_of_.try_emplace(same, runs_.size());
  if (is_new)
    runs_.push_back(
        {.point = {.name = each.name, .axes = {}, .fingerprint = same}, .scenario = std::move(*loaded), .names = {}});
  runs_[entry->second].names.push_back(each.name);
}

const PointDefinition& PaperRun::point(const std::string& name) const {
  for (const PointDefinition& each : definition_.points)
    if (each.name == name) return each;
  throw InternalError(fmt::format("no point {}", name));
}

/// One line per finished point, with the time that the others will take if they take as long as those so far.
void PaperRun::print_progress(const launch::PointEvent& event) {
  if (!event.said.empty() && !expects(point(event.name), event.said))
    print_message(fmt::format("point {}:\n{}", event.name, event.said));
  if (arguments_.quiet) return;
  const bool failed = !event.said.empty() && expects(point(event.name), event.said);
  print_message(fmt::format("[{}/{}] {}: {}; about {:.0f} s left\n", event.finished, event.total, event.name,
                            failed ? "failed as expected" : event.what, event.left_s));
}

int PaperRun::run() {
  if (runs_.empty()) return 0;
  std::vector<launch::Point> points;
  for (const Run& each : runs_) points.push_back(each.point);
  if (!arguments_.quiet)
    print_message(fmt::format("{}: {} points, {} of them to be simulated; results in {}\n", definition_.name,
                              definition_.points.size(), points.size(), directory_.string()));
  PointLines lines(arguments_.quiet);
  launch::PointRunner runner(
      std::move(points),
      {.directory = directory_,
       .run = [&](std::size_t index, const std::filesystem::path& out,
                  const launch::TellProgress& tell) { return run_point(runs_[index].scenario, inputs_, out, tell); },
       .jobs = arguments_.jobs,
       .resume = arguments_.resume,
       .overwrite = arguments_.overwrite,
       .progress =
           [&](const launch::PointEvent& event) {
             lines.end(event.name);
             print_progress(event);
           },
       .point_progress = [&](const std::string& name, const launch::PointProgress& p) { lines.update(name, p); }});
  launch::note_interrupts();
  const int status = runner.run();
  lines.clear();
  if (launch::interrupt() != 0) {
    print_message(
        fmt::format("\ncsdsim reproduce: {} of {} points are done: interrupted; the same command with "
                    "--resume goes on\n",
                    runner.rows().size(), runs_.size()));
    launch::end_by_interrupt();
  }
  return take_results(runner.rows(), status);
}

int PaperRun::take_results(const std::vector<launch::SweepRow>& rows, int status) {
  bool all_expected = true;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& name : runs_[i].names) {
      PointOutcome& outcome = outcomes_[name];
      if (rows[i].error.empty()) {
        outcome.result = rows[i].result;
        continue;
      }
      outcome.error = rows[i].error;
      outcome.expected = expects(point(name), rows[i].error);
      all_expected = all_expected && outcome.expected;
    }
  }
  return all_expected ? 0 : status;
}

}  // namespace

int reproduce(const ReproduceArguments& arguments) {
  reproduction::Paper paper = reproduction::open_paper(arguments.paper);
  if (!arguments.rows.empty()) paper.definition = reproduction::only_rows(std::move(paper.definition), arguments.rows);
  if (arguments.one_column) paper.definition = reproduction::one_column(std::move(paper.definition));
  const reproduction::Definition& definition = paper.definition;
  const std::filesystem::path directory =
      arguments.out.value_or(std::filesystem::path("out") / fmt::format("reproduce-{}", definition.name));
  std::filesystem::path scenario = paper.scenario_file;
  if (scenario.empty()) {
    // Beside the results, so that its points can be run by hand.
    scenario = directory / definition.scenario;
    report::write_file(scenario, paper.scenario_text);
  }
  const ordered_json base =
      scenario::effective_config(experiment::load_scenario(scenario, arguments.overrides).base.scenario);
  PaperRun run(definition, scenario, arguments, directory);
  run.load();
  const int status = run.run();

  const reproduction::Evaluation evaluation = reproduction::evaluate(definition, base, run.outcomes());
  const ordered_json document =
      reproduction::document_of(definition, evaluation, run.outcomes(), experiment::build_info(), base);
  report::write_file(directory / "reproduction.json", document.dump(2) + "\n");
  report::write_file(directory / "reproduction.csv", reproduction::csv_of(document));
  for (const auto& [name, page] : reproduction::pictures_of(definition, evaluation))
    report::write_file(directory / name, page);
  if (arguments.format == Format::json) {
    print_result(fmt::format("{}\n", document.dump(2)));
  } else if (arguments.format == Format::csv) {
    print_result(reproduction::csv_of(document));
  } else {
    print_result(fmt::format("{}\nAll figures: {}; one page: csdsim report {}\n", reproduction::text_of(document),
                             (directory / "reproduction.json").string(), directory.string()));
  }
  return status;
}

}  // namespace csdsim::app
