// csdsim test-power: tests what the block namespace loses when the power fails.
#include <fmt/format.h>

#include <string_view>

#include "app/commands.h"
#include "app/standard_output.h"
#include "ftl/durability/search.h"

namespace csdsim::app {
namespace {

using ftl::durability::CutCoverage;
using ftl::durability::Report;

std::string text_of(std::string_view what, const Report& report) {
  const CutCoverage& c = report.coverage;
  std::string text = fmt::format(
      "{}: {} cuts in {} histories, {} of them during a recovery\n"
      "  {} commands, {} operations of flash; {} word lines torn, {} blocks half erased, {} erases not begun\n"
      "  {} pages found, {} older or equal copies, {} copies trimmed, {} pages from dumps; {} units came back older\n"
      "  {} blocks collected, {} failed\n",
      what, c.cuts, report.cases, c.cuts_in_recovery, c.commands, c.completions, c.torn, c.half_erased, c.undone_erases,
      c.found, c.stale, c.trimmed, c.saved, c.older_versions, c.collected, c.bad_blocks);
  if (report.broken) text += "BROKEN\n" + ftl::durability::to_text(*report.broken);
  return text;
}

}  // namespace

int test_power(const TestPowerArguments& arguments) {
  ftl::durability::SearchOptions options{.cuts = arguments.cuts, .seed = arguments.seed};
  options.units_per_program = arguments.units_per_program;
  if (arguments.protection) options.capacitors = *arguments.protection == "capacitors";
  if (arguments.commands > 0) {
    const Report all = ftl::durability::search_exhaustively(arguments.commands, options);
    print_result(text_of(fmt::format("all histories of up to {} commands", arguments.commands), all));
    if (all.broken) return 1;
  }
  const Report random = ftl::durability::search_randomly(options);
  print_result(text_of(fmt::format("random histories, seed {}", arguments.seed), random));
  if (random.broken) return 1;
  print_result("nothing that was durable was lost\n");
  return 0;
}

}  // namespace csdsim::app
