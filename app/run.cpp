#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <set>

#include "app/commands.h"
#include "app/standard_output.h"
#include "base/config/dump.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "experiment/sensitivity.h"
#include "launch/directory_lock.h"
#include "launch/interrupts.h"
#include "report/files.h"
#include "report/text.h"

namespace csdsim::app {
namespace {

/// Writes result.json and the other files of a result.
void write_result(const scenario::RunResult& result, const std::filesystem::path& directory, report::Durable durable) {
  report::write_file(directory / "result.json", result.document.dump(2) + "\n", durable);
  for (const auto& [name, text] : result.files) report::write_file(directory / name, text, durable);
}

/// UserError if the file of an option would overwrite what the run reads.
void refuse_input(std::string_view option, const std::filesystem::path& written, const std::filesystem::path& file,
                  const scenario::Scenario& s) {
  std::error_code none;
  std::vector<std::filesystem::path> inputs = s.inputs;
  inputs.push_back(file);
  for (const std::filesystem::path& input : inputs)
    if (std::filesystem::equivalent(written, input, none))
      throw UserError(fmt::format("{} {}: the run reads this file", option, written.string()));
}

constexpr const char* kNoResult = "\ncsdsim run: interrupted, before the result was written\n";

/// What SIGINT and SIGTERM do during the run of a scenario.
void take_interrupts(const scenario::Scenario& s, const RunArguments& arguments, scenario::RunOptions& options) {
  launch::forget_interrupts();
  if (s.workload->ends_early(s) && !arguments.sensitivity) {
    launch::note_interrupts();
    options.interrupted = [] { return launch::interrupt() != 0; };
  } else if (!arguments.quiet) {
    launch::tell_interrupts(kNoResult);
  }
}

/// Ends this process if a signal has ended the run before its first request had ended: there is no result then.
void end_without_result(const scenario::RunResult& result) {
  if (launch::interrupt() == 0 || !result.document.contains("partial")) return;
  if (result.document["partial"]["requests_ended"] != 0) return;
  print_message(kNoResult);
  launch::end_by_interrupt();
}

/// Ends this process by the signal that came during the run. The result is written before.
void end_if_interrupted(const scenario::RunResult& result) {
  if (launch::interrupt() == 0) return;
  if (result.document.contains("partial"))
    print_message(fmt::format("\ncsdsim run: interrupted: the result has the {} of {} requests that had ended\n",
                              result.document["partial"]["requests_ended"].get<std::uint64_t>(),
                              result.document["partial"]["requests"].get<std::uint64_t>()));
  launch::end_by_interrupt();
}

/// Tells why a run has failed, if it has. Returns the exit status.
int report_failure(const scenario::Scenario& s, const scenario::RunResult& result) {
  if (result.failure.empty()) return 0;
  print_message(fmt::format("{}: FAILED: {}\n", s.name, result.failure));
  return 1;
}

}  // namespace

std::uint64_t fingerprint(const scenario::Scenario& scenario, launch::InputFiles& inputs) {
  return fnv1a64(scenario::effective_config(scenario).dump() + experiment::build_info().dump() +
                 fmt::format("{:x}", inputs.digest(scenario.inputs)));
}

void write_origins(const scenario::Resolved& resolved, const std::string& questions,
                   const std::filesystem::path& directory) {
  report::write_file(directory / kOriginsFile, config::dump_origins(resolved.origins).dump(1) + "\n");
  const std::filesystem::path question = directory / kQuestionFile;
  if (!questions.empty())
    report::write_file(question, questions + "\n");
  else if (std::error_code none; std::filesystem::exists(question, none))
    std::filesystem::remove(question, none);  // the question belongs to another scenario
}

int run_point(const scenario::Scenario& scenario, const launch::InputFiles& inputs,
              const std::filesystem::path& directory, const launch::TellProgress& tell) {
  inputs.check_unchanged(scenario.inputs);
  scenario::RunOptions options;
  options.progress = tell;
  const scenario::RunResult result = experiment::run_scenario(scenario, options);
  inputs.check_unchanged(scenario.inputs);
  write_result(result, directory, report::Durable::later);
  return report_failure(scenario, result);
}

int run(const RunArguments& arguments) {
  // Read all scenarios before the first one runs, so that a mistake in the last one is reported at once.
  std::vector<scenario::LoadedPoint> loaded;
  std::set<std::string> names;
  for (const auto& path : arguments.scenarios) {
    loaded.push_back(experiment::load_point(path, arguments.overrides, arguments.point));
    const scenario::Resolved& resolved = loaded.back().resolved;
    if (!arguments.quiet)
      for (const std::string& note : resolved.notes) print_message(fmt::format("{}\n", note));
    if (!names.insert(resolved.scenario.name).second && arguments.out)
      throw UserError(fmt::format("{}: a second scenario named '{}' would overwrite the result of the first",
                                  path.string(), resolved.scenario.name));
  }
  Bytes trace_limit;
  try {
    trace_limit = parse_bytes(arguments.trace_limit);
  } catch (const UserError& error) {
    throw UserError(fmt::format("--trace-limit: {}", error.what()));
  }
  const auto check_written = [&](std::string_view option, const std::optional<std::filesystem::path>& written) {
    if (!written) return;
    if (loaded.size() > 1) throw UserError(fmt::format("{}: takes one scenario, several are given", option));
    refuse_input(option, *written, arguments.scenarios.front(), loaded.front().resolved.scenario);
  };
  check_written("--trace", arguments.trace);
  check_written("--vcd", arguments.waveforms);
  check_written("--metrics", arguments.metrics);
  if (arguments.metrics && !loaded.front().resolved.scenario.workload->has_prometheus_text())
    throw UserError(fmt::format("--metrics: a workload of kind {} has no Prometheus text; serving has",
                                loaded.front().resolved.scenario.workload.kind()));

  int status = 0;
  for (const scenario::LoadedPoint& each : loaded) {
    const scenario::Scenario& s = each.resolved.scenario;
    if (each.points > 0 && !arguments.point && !arguments.quiet)
      print_message(fmt::format("{}: has a sweep of {} points; running its base point (csdsim sweep runs all)\n",
                                s.name, each.points));
    const auto directory = [&] { return loaded.size() > 1 ? *arguments.out / s.name : *arguments.out; };
    std::optional<launch::DirectoryLock> lock;
    if (arguments.out) {  // before the run, which may take long
      report::make_directory(directory());
      lock.emplace(directory());
    }
    scenario::RunResult result;
    {
      report::Progress progress(s.name, arguments.quiet);
      scenario::RunOptions options;
      options.trace = arguments.trace;
      options.trace_limit = trace_limit;
      options.waveforms = arguments.waveforms;
      options.progress = [&](std::string_view what, std::uint64_t done, std::uint64_t total) {
        progress.update(what, done, total);
      };
      if (!arguments.quiet)
        options.notice = [&](const std::string& line) { print_message(fmt::format("{}: {}\n", s.name, line)); };
      take_interrupts(s, arguments, options);
      result =
          arguments.sensitivity ? experiment::run_with_sensitivity(s, options) : experiment::run_scenario(s, options);
    }
    end_without_result(result);
    if (arguments.out) {
      write_result(result, directory(), report::Durable::now);
      write_origins(each.resolved, each.resolved.question, directory());
    }
    if (arguments.metrics) {
      const auto text = std::ranges::find(result.files, "metrics.prom", &scenario::RunResult::File::name);
      report::write_file(*arguments.metrics, text->text);
    }
    print_result(report::result_text(result.document, result.meaning, arguments.format));
    status = std::max(status, report_failure(s, result));
    end_if_interrupted(result);
  }
  return status;
}

}  // namespace csdsim::app
