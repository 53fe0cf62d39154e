#include <fmt/format.h>

#include <cstdio>

#include "app/commands.h"
#include "app/standard_output.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"
#include "experiment/endurance/certificate.h"
#include "experiment/experiments.h"
#include "report/files.h"
#include "scenario/load_point.h"

namespace csdsim::app {
namespace {

scenario::Scenario scenario_of(const CertifyArguments& arguments) {
  if (arguments.scenario && arguments.object)
    throw UserError("--object: the scenario says how large objects are; leave one of the two out");
  if (arguments.scenario)
    return scenario::load_point(*arguments.scenario, arguments.overrides, experiment::builtin_registries(),
                                std::nullopt)
        .resolved.scenario;
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
  if (!arguments.quiet)
    options.progress = [](std::string_view what, std::size_t done, std::size_t total) {
      std::fprintf(stderr, "[%zu/%zu] %.*s\n", done + 1, total, static_cast<int>(what.size()), what.data());
    };
  const nlohmann::ordered_json certificate = experiment::certificate(scenario_of(arguments), options);
  if (arguments.out) report::write_file(*arguments.out / "certificate.json", certificate.dump(2) + "\n");
  print_result(arguments.format == Format::json ? certificate.dump(2) + "\n"
                                                : experiment::certificate_text(certificate));
  return 0;
}

}  // namespace csdsim::app
