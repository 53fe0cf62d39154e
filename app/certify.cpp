#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/commands.h"
#include "app/results.h"
#include "app/standard_output.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"
#include "experiment/endurance/certificate.h"
#include "experiment/experiments.h"
#include "report/files.h"
#include "report/html_page.h"
#include "report/result_document.h"
#include "report/text.h"
#include "scenario/axis_range.h"

namespace csdsim::app {
namespace {

/// Where the scenario is the folder of a finished run: its result document.
std::optional<nlohmann::ordered_json> finished_run(const CertifyArguments& arguments) {
  if (!arguments.scenario || !std::filesystem::is_directory(*arguments.scenario)) return std::nullopt;
  const std::filesystem::path file = *arguments.scenario / "result.json";
  if (!std::filesystem::exists(file))
    throw UserError(
        fmt::format("{}: holds no result.json of a run (of a sweep, give the folder of a point: points/NAME)",
                    arguments.scenario->string()));
  nlohmann::ordered_json document = read_json(file);
  report::check_result(document, file.string());
  if (!document.contains("scenario")) throw UserError(fmt::format("{}: does not say what was run", file.string()));
  return document;
}

scenario::Scenario scenario_of(const CertifyArguments& arguments,
                               const std::optional<nlohmann::ordered_json>& finished) {
  if (arguments.scenario && arguments.object)
    throw UserError("--object: the scenario says how large objects are; leave one of the two out");
  if (finished) {
    // A result lists every value of its drive. They would override the values of another preset.
    for (const std::string& set : arguments.overrides)
      if (const std::string key = set.substr(0, set.find('=')); key == "platform" || key.ends_with("preset"))
        throw UserError(
            fmt::format("--set {}: a finished run states every value of its drive; give the scenario file to certify "
                        "another one",
                        set));
    return experiment::load_scenario_text((*finished)["scenario"].dump(),
                                          (*arguments.scenario / "result.json").string(), *arguments.scenario,
                                          arguments.overrides)
        .base.scenario;
  }
  if (arguments.scenario) return experiment::load_point(*arguments.scenario, arguments.overrides).resolved.scenario;
  if (!arguments.object) throw UserError("certify needs a scenario, or the size of the objects with --object");
  Bytes object;
  try {
    object = parse_bytes(*arguments.object);
  } catch (const UserError& error) {
    throw UserError(fmt::format("--object: {}", error.what()));
  }
  return experiment::load_scenario_text(experiment::plain_certificate_scenario(object), "certificate", ".",
                                        arguments.overrides)
      .base.scenario;
}

/// "2 TB/day"
Bytes per_day(std::string_view text) {
  constexpr std::string_view kUnit = "/day";
  if (!text.ends_with(kUnit))
    throw UserError(fmt::format("--writes: '{}' is no rate like 2TB/day", printable(std::string(text))));
  try {
    const Bytes bytes = parse_bytes(text.substr(0, text.size() - kUnit.size()));
    if (bytes.value > 0) return bytes;
  } catch (const UserError& error) {
    throw UserError(fmt::format("--writes: {}", error.what()));
  }
  throw UserError("--writes: nothing is written, so that the drive does not wear out");
}

}  // namespace

int certify(const CertifyArguments& arguments) {
  experiment::CertificateOptions options{
      .writes_per_day = std::nullopt, .rating = arguments.rating, .seeds = arguments.seeds, .changes = !arguments.only};
  if (arguments.writes) options.writes_per_day = per_day(*arguments.writes);
  if (!arguments.quiet) options.progress = report::Steps();
  const std::optional<nlohmann::ordered_json> finished = finished_run(arguments);
  const scenario::Scenario scenario = scenario_of(arguments, finished);
  // With another value the run would have written something else.
  if (finished && arguments.overrides.empty()) options.finished = *finished;
  const experiment::Certificate certificate = experiment::certificate(scenario, options);
  const std::string json = certificate.json.dump(2) + "\n";
  if (arguments.out) {
    report::write_file(*arguments.out / "certificate.json", json);
    report::write_file(*arguments.out / "certificate.html",
                       report::html_page(experiment::certificate_page(certificate), scenario::number_of));
  }
  print_result(arguments.format == Format::json ? json : experiment::certificate_text(certificate.json));
  return 0;
}

}  // namespace csdsim::app
