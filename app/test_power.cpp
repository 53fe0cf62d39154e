// csdsim test-power: tests what a drive loses when the power fails.
#include <fmt/format.h>

#include <string_view>

#include "app/commands.h"
#include "app/standard_output.h"
#include "ftl/durability/kv_search.h"
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
      "  {} pages found, {} older or equal copies, {} copies trimmed, {} pages from dumps, {} translation pages "
      "written; {} units came back older\n"
      "  {} blocks collected, {} failed\n",
      what, c.cuts, report.cases, c.cuts_in_recovery, c.commands, c.completions, c.torn, c.half_erased, c.undone_erases,
      c.found, c.stale, c.trimmed, c.saved, c.map_pages, c.older_versions, c.collected, c.bad_blocks);
  if (report.broken) text += "BROKEN\n" + ftl::durability::to_text(*report.broken);
  return text;
}

std::string text_of(std::string_view what, const ftl::durability::KvReport& report) {
  const ftl::durability::KvCoverage& c = report.coverage;
  std::string text = fmt::format(
      "{}: {} cuts in {} histories, {} of them during a recovery\n"
      "  {} commands, {} forks, {} without room, {} operations of flash; {} pages torn, {} blocks half erased, {} "
      "erases "
      "not begun\n"
      "  {} pages found, {} of no sequence or older, {} from dumps, {} transposed again, {} kept in DRAM; {} windows "
      "compared\n"
      "  {} blocks collected, {} failed; {} sequences lost by weak capacitors, and reported\n",
      what, c.cuts, report.cases, c.cuts_in_recovery, c.commands, c.forks, c.refused, c.completions, c.torn,
      c.half_erased, c.undone_erases, c.found, c.stale, c.saved, c.rebuilt, c.parked, c.windows, c.collected,
      c.bad_blocks, c.lost_sequences);
  if (report.broken) text += "BROKEN\n" + ftl::durability::to_text(*report.broken);
  return text;
}

/// Prints both searches; the second only if the first finds nothing. Returns whether nothing was lost.
template <class Exhaustive, class Random>
bool search(const TestPowerArguments& arguments, std::string_view of, const Exhaustive& exhaustive,
            const Random& random) {
  if (arguments.commands > 0) {
    const auto all = exhaustive();
    print_result(text_of(fmt::format("{}: all histories of up to {} commands", of, arguments.commands), all));
    if (all.broken) return false;
  }
  const auto found = random();
  print_result(text_of(fmt::format("{}: random histories, seed {}", of, arguments.seed), found));
  return !found.broken;
}

bool test_blocks(const TestPowerArguments& arguments) {
  ftl::durability::SearchOptions options{.cuts = arguments.cuts, .seed = arguments.seed};
  options.units_per_program = arguments.units_per_program;
  if (arguments.protection) options.capacitors = *arguments.protection == "capacitors";
  return search(
      arguments, "blocks", [&] { return ftl::durability::search_exhaustively(arguments.commands, options); },
      [&] { return ftl::durability::search_randomly(options); });
}

bool test_kv(const TestPowerArguments& arguments) {
  const ftl::PolicyRegistry policies = ftl::PolicyRegistry::with_builtin();
  return search(
      arguments, "keys and values", [&] { return ftl::durability::search_exhaustively(policies, arguments.commands); },
      [&] { return ftl::durability::search_randomly(policies, {.cuts = arguments.cuts, .seed = arguments.seed}); });
}

}  // namespace

int test_power(const TestPowerArguments& arguments) {
  if (arguments.of != "kv" && !test_blocks(arguments)) return 1;
  // Word lines and drives without protection are the block namespace's.
  const bool of_blocks = arguments.units_per_program || arguments.protection;
  const bool kv = arguments.of == "kv" || (arguments.of == "both" && !of_blocks);
  if (kv && !test_kv(arguments)) return 1;
  print_result("nothing that was durable was lost\n");
  return 0;
}

}  // namespace csdsim::app
