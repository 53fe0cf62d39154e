#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/commands.h"
#include "app/standard_output.h"
#include "base/config/yaml.h"
#include "base/error.h"
#include "base/text.h"
#include "experiment/datasheet/datasheet.h"
#include "experiment/experiments.h"
#include "experiment/fio/fio_job.h"
#include "report/csv.h"
#include "report/files.h"
#include "report/text.h"
#include "scenario/presets.h"

namespace csdsim::app {
namespace {

/// Whether the file or the overrides say what to run. A file with a drive only does not.
bool has_workload(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  if (file.extension() == experiment::kFioJobs) return true;
  const auto sets_workload = [](const std::string& set) { return set.starts_with("workload"); };
  if (std::ranges::any_of(overrides, sets_workload)) return true;
  config::Diagnostics mistakes;  // reported when the file is read as a scenario
  const config::Node root = config::parse_document(config::read_file(file), {}, mistakes);
  return !mistakes.ok() || root.find("workload") != nullptr;
}

/// The scenario with the drive: a preset's name, or a file. Its notes are those of `check` if it writes 4 KiB at a
/// time, as the data sheet does.
scenario::Resolved drive_of(const std::string& drive, std::vector<std::string> overrides) {
  const scenario::Presets& presets = scenario::Presets::builtin();
  if (presets.find("device", drive) != nullptr) {
    scenario::Resolved preset =
        experiment::load_scenario_text(
            fmt::format("csdsim: 1\nname: {0}\nplatform: {{device: {{preset: {0}}}}}\nworkload: {{kind: block_io}}\n",
                        drive),
            drive, ".", overrides)
            .base;
    preset.notes.clear();  // its values are not the user's
    return preset;
  }
  if (std::error_code none; !std::filesystem::exists(drive, none)) {
    const std::vector<std::string> names = presets.names("device");
    if (drive.ends_with(".yaml") || drive.find('/') != std::string::npos)
      throw UserError(fmt::format("{}: no such file", printable(drive)));
    throw UserError(
        fmt::format("'{}' is neither a drive nor a scenario file{}; drives: {}. A drive of your own: the nearest of "
                    "these with --set platform.device...=, or a scenario such as scenarios/my_ssd.yaml",
                    printable(drive), did_you_mean(drive, names), join(names)));
  }
  const auto read = [&drive](const std::vector<std::string>& sets) {
    return experiment::load_point(drive, sets).resolved;
  };
  if (!has_workload(drive, overrides)) overrides.push_back("workload.kind=block_io");
  const std::vector<std::string> as_given = overrides;
  overrides.insert(overrides.end(), {"workload.pattern=random_write", "workload.request_size=4 KiB"});
  try {
    return read(overrides);
  } catch (const UserError&) {  // its workload has no pattern (a trace, flows, a generation), or the file has mistakes
    return read(as_given);
  }
}

}  // namespace

int datasheet(const DatasheetArguments& arguments) {
  const scenario::Resolved drive = drive_of(arguments.drive, arguments.overrides);
  if (arguments.model) {
    const scenario::Presets& presets = scenario::Presets::builtin();
    const std::vector<std::string> names = presets.names("model");
    if (presets.find("model", *arguments.model) == nullptr)
      throw UserError(fmt::format("--model: there is no model '{}'{}; exists: {}", printable(*arguments.model),
                                  did_you_mean(*arguments.model, names), join(names)));
  }
  experiment::DatasheetOptions options{.model = arguments.model};
  if (!arguments.quiet) {
    for (const std::string& note : drive.notes) print_message(fmt::format("{}\n", note));
    options.progress = report::Steps();
  }
  const nlohmann::ordered_json sheet = experiment::datasheet(drive.scenario, options);
  if (arguments.out) report::write_file(*arguments.out / "datasheet.json", sheet.dump(2) + "\n");
  if (arguments.format == Format::json)
    print_result(sheet.dump(2) + "\n");
  else if (arguments.format == Format::csv)
    print_result(report::csv_rows(experiment::datasheet_rows(sheet)));
  else
    print_result(experiment::datasheet_text(sheet));
  return 0;
}

}  // namespace csdsim::app
