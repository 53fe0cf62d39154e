#include "ftl/durability/case.h"

#include <fmt/format.h>

#include "ftl/durability/block_run.h"
#include "ftl/durability/run_steps.h"

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
  return run_steps<CaseResult>(BlockRun(c, with_history), c, only_steps);
}

}  // namespace csdsim::ftl::durability
