// The options of the commands that run many points and show them.
#include <memory>

#include "app/options.h"

namespace csdsim::app {
namespace {

void add_sweep(CLI::App& cli, int& status) {
  const auto sweep = std::make_shared<SweepArguments>();
  auto* sweep_command =
      cli.add_subcommand("sweep", "Run all points of a scenario's sweep; write DIR/results.sqlite, .csv and .jsonl");
  sweep_command->add_option("scenario", sweep->scenarios, "Scenario files with a sweep section; several make one table")
      ->required();
  sweep_command->add_option("--set", sweep->overrides, "Override a key in every point: a.b=v")->allow_extra_args(false);
  sweep_command->add_option("-j,--jobs", sweep->jobs, "Points at a time")->check(CLI::Range(1U, 1024U));
  sweep_command->add_option("--out", sweep->out, "Directory for results (default: out/<name>)")->check(kNamed);
  add_format(*sweep_command, sweep->format, kRowFormats);
  sweep_command->add_option("--shard", sweep->shard,
                            "Run the I-th of N parts only: I/N, e.g. 2/8; csdsim merge puts the parts together");
  auto* resume = sweep_command->add_flag(
      "--resume", sweep->resume,
      "Keep points that were already computed from the same configuration and by the same program");
  sweep_command->add_flag("--overwrite", sweep->overwrite, "Delete the results that the directory holds")
      ->excludes(resume);
  sweep_command->add_flag("-q,--quiet", sweep->quiet, "No progress and no notes on stderr");
  sweep_command->callback([sweep, &status] { status = app::sweep(*sweep); });
}

void add_merge(CLI::App& cli, int& status) {
  const auto merge = std::make_shared<MergeArguments>();
  auto* command = cli.add_subcommand("merge", "Put the parts of a sweep (csdsim sweep --shard) together");
  command->add_option("part", merge->parts, "The --out of each part")->required();
  command->add_option("--out", merge->out, "Directory for the whole")->required()->check(kNamed);
  command->add_flag("--overwrite", merge->overwrite, "Delete the results that the directory holds");
  add_format(*command, merge->format, kRowFormats);
  command->callback([merge, &status] { status = app::merge(*merge); });
}

void add_report(CLI::App& cli, int& status) {
  const auto report = std::make_shared<ReportArguments>();
  auto* command = cli.add_subcommand(
      "report", "Write one HTML file with charts, tables and configuration of a sweep or a run; it needs no network");
  command->add_option("directory", report->directory, "The --out of a sweep or a run (sweeps: out/<name>)")->required();
  auto* out = command->add_option("-o,--out", report->out, "HTML file (default: DIR/report.html)")->check(kNamed);
  auto* plot = command->add_option("--plot", report->plot,
                                   "Draw one figure for a paper instead, with matplotlib: FILE.png, .svg or .pdf");
  plot->check(kNamed)->excludes(out);
  command->add_option("--x", report->x, "Axis of the figure (default: the last one with several values)")->needs(plot);
  command
      ->add_option("--y", report->y,
                   "Metric of the figure (default: the one that the sweep is about; of services request_ttft_p99_s)")
      ->needs(plot);
  command->callback([report, &status] { status = app::report(*report); });
}

void add_compare(CLI::App& cli, int& status) {
  const auto compare = std::make_shared<CompareArguments>();
  auto* command = cli.add_subcommand(
      "compare", "Show what has changed between two runs or sweeps: builds, parameters, and metrics beyond noise");
  command->add_option("a", compare->a, "The --out of a run or a sweep, or a result.json: before")->required();
  command->add_option("b", compare->b, "The same: after")->required();
  command->add_option("--out", compare->out, "JSON file to write")->check(kNamed);
  add_format(*command, compare->format);
  command
      ->add_option("--fail-on", compare->fail_on,
                   "Exit status 1 if a metric is worse beyond noise, or has changed in any way")
      ->check(CLI::IsMember({"worse", "change"}));
  command->callback([compare, &status] { status = app::compare(*compare); });
}

void add_reproduce(CLI::App& cli, int& status) {
  const auto reproduce = std::make_shared<ReproduceArguments>();
  auto* command = cli.add_subcommand(
      "reproduce", "Run the evaluation of a paper and compare; write DIR/reproduction.json, .csv and pictures");
  command->add_option("paper", reproduce->paper, "A paper (csdsim list papers), or a file NAME.reproduction.yaml")
      ->required();
  command->add_option("--set", reproduce->overrides, "Override a key in every point: a.b=v (a point's own value wins)")
      ->allow_extra_args(false);
  command
      ->add_option("--rows", reproduce->rows,
                   "Only the rows ID[,ID...] and the points that they need (default: all rows)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_flag("--one-column", reproduce->one_column,
                    "Only the scenario as it is, without the other columns of the table");
  command->add_option("-j,--jobs", reproduce->jobs, "Points at a time")->check(CLI::Range(1U, 1024U));
  command->add_option("--out", reproduce->out, "Directory for results (default: out/reproduce-<name>)")->check(kNamed);
  add_format(*command, reproduce->format);
  auto* resume =
      command->add_flag("--resume", reproduce->resume,
                        "Keep points that were already computed from the same configuration and by the same program");
  command->add_flag("--overwrite", reproduce->overwrite, "Delete the results that the directory holds")
      ->excludes(resume);
  command->add_flag("-q,--quiet", reproduce->quiet, "No progress and no notes on stderr");
  command->callback([reproduce, &status] { status = app::reproduce(*reproduce); });
}

void add_calibrate(CLI::App& cli, int& status) {
  const auto calibrate = std::make_shared<CalibrateArguments>();
  auto* command = cli.add_subcommand(
      "calibrate", "Find latencies, dies and firmware times of a drive that give the points that fio has measured");
  command->add_option("scenario", calibrate->scenario, "Scenario file of a drive (workload block_io)")->required();
  command->add_option("--fio", calibrate->fio, "Output of fio --output-format=json (repeatable)")
      ->required()
      ->allow_extra_args(false);
  command->add_option("--set", calibrate->overrides, "Override a key: a.b=v (repeatable)")->allow_extra_args(false);
  command
      ->add_option(
          "--fit", calibrate->fit,
          "Also find this parameter of platform.device, or search elsewhere: KEY=LOW..HIGH, KEY=VALUE,VALUE,...")
      ->allow_extra_args(false);
  command->add_option("--fix", calibrate->fix, "Leave this parameter as the scenario states it: KEY")
      ->allow_extra_args(false);
  command->add_option("--requests", calibrate->requests, "Simulated requests of one page per point")
      ->check(CLI::Range(std::uint64_t{100}, std::uint64_t{10'000'000}))
      ->capture_default_str();
  command->add_option("--seed", calibrate->seed, "Seed of the search")->check(kWholeNumber)->capture_default_str();
  command->add_option("-j,--jobs", calibrate->jobs, "Points at a time")->check(CLI::Range(1U, 1024U));
  command->add_option("--out", calibrate->out, "Directory for results (default: out/<name>-calibrated)")->check(kNamed);
  command->add_option("--plot", calibrate->plot, "Also draw the points, with matplotlib: FILE.png, .svg or .pdf")
      ->check(kNamed);
  add_format(*command, calibrate->format, kDocumentFormats);
  command->add_flag("-q,--quiet", calibrate->quiet, "No progress and no notes on stderr");
  command->callback([calibrate, &status] { status = app::calibrate(*calibrate); });
}

}  // namespace

void add_exploration(CLI::App& cli, int& status) {
  add_sweep(cli, status);
  add_merge(cli, status);
  add_compare(cli, status);
  add_report(cli, status);
  add_reproduce(cli, status);
  add_calibrate(cli, status);
}

}  // namespace csdsim::app
