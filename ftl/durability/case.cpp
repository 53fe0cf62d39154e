#include "ftl/durability/case.h"

#include <fmt/format.h>

#include <exception>

#include "ftl/durability/block_run.h"

namespace csdsim::ftl::durability {

std::string to_string(const Setup& setup) {
  const FlashGeometry& g = setup.geometry;
  const BlockFtlConfig& c = setup.config;
  return fmt::format(
      "{} channels, {} dies, {} planes, {} blocks of {} units of {} bytes, {} units a word line{}; {}; {:.0f} % "
      "spare{}; "
      "{} spare blocks, {} of 1,000 programs and erases fail; written {:.1f} times; seed {}",
      g.channels, g.dies_per_channel, g.planes_per_die, g.blocks_per_plane, g.pages_per_block, g.page_size.value,
      c.units_per_program, c.pads ? ", padded" : "", setup.capacitors ? "capacitors" : "no protection",
      100 * c.over_provisioning,
      c.map_cache_entries ? fmt::format(", {} map entries cached", *c.map_cache_entries) : "", setup.spare_blocks,
      setup.failures_per_mille, setup.filled, setup.seed);
}

CutCoverage& CutCoverage::operator+=(const CutCoverage& o) {
  cuts += o.cuts;
  commands += o.commands;
  completions += o.completions;
  torn += o.torn;
  half_erased += o.half_erased;
  undone_erases += o.undone_erases;
  found += o.found;
  stale += o.stale;
  trimmed += o.trimmed;
  saved += o.saved;
  map_pages += o.map_pages;
  cuts_in_recovery += o.cuts_in_recovery;
  older_versions += o.older_versions;
  collected += o.collected;
  bad_blocks += o.bad_blocks;
  read_only += o.read_only;
  return *this;
}

CaseResult run_case(const Case& c, bool with_history, bool only_steps) {
  CaseResult result;
  BlockRun run(c, with_history);
  std::size_t at = 0;
  try {
    run.fill();
    for (; at < c.steps.size(); ++at) run.step(c.steps[at]);
    result.ready = run.ready();
    if (!only_steps) run.go_on_without_faults();
  } catch (const Broken& broken) {
    result.violation = Violation{broken.what, at};
  } catch (const std::exception& e) {
    result.violation = Violation{e.what(), at};
  }
  result.coverage = run.coverage();
  result.history = run.take_history();
  return result;
}

}  // namespace csdsim::ftl::durability
