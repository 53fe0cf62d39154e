#include "ftl/durability/search.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/rng.h"

namespace csdsim::ftl::durability {
namespace {

using Kind = Step::Kind;

Setup random_setup(Rng& rng, const SearchOptions& options) {
  Setup s;
  s.seed = rng();
  s.capacitors = options.capacitors.value_or(rng.below(2) == 0);
  const std::uint32_t line = options.units_per_program.value_or(std::array{1u, 3u, 1u, 3u, 4u, 12u}[rng.below(6)]);
  BlockFtlConfig& c = s.config;
  c.units_per_program = line;
  c.volatile_lines = !s.capacitors;
  c.pads = line > 1 && rng.below(4) == 0;
  c.gc_pace = rng.below(3) == 0 ? GcPace::blocks : GcPace::steps;
  c.gc_free_blocks = c.gc_pace == GcPace::blocks ? 1 : 1 + static_cast<std::uint32_t>(rng.below(2));
  // Padded requests stay on one plane where no load is known.
  c.allocation = c.pads || rng.below(4) == 0 ? PageAllocation::fixed : PageAllocation::dynamic;
  c.background_free_blocks = rng.below(3) == 0 ? 3 : 0;
  c.gc_step_pages = 1 + static_cast<std::uint32_t>(rng.below(4));
  c.wear_spread = rng.below(3) == 0 ? 2 : 0;
  c.check = PageCheck::key_and_crc;
  s.gc.kind =
      std::array{GcPolicy::greedy, GcPolicy::cost_benefit, GcPolicy::random_greedy, GcPolicy::fifo}[rng.below(4)];
  s.geometry = {1 + static_cast<std::uint32_t>(rng.below(2)),          1,
                1 + static_cast<std::uint32_t>(rng.below(2)),          10 + static_cast<std::uint32_t>(rng.below(6)),
                line * (2 + static_cast<std::uint32_t>(rng.below(4))), Bytes{16}};
  // With less to spare, planes so small move whole blocks in circles for each write; one of several planes may be
  // fuller than the others.
  const double spare = (rng.below(3) == 0 ? 4.3 : 5.3) + (s.geometry.planes() > 1 ? 2 : 0);
  c.over_provisioning = spare / s.geometry.blocks_per_plane;
  if (line == 1 && rng.below(3) == 0) {  // where units share a word line, nothing fails
    s.spare_blocks = 3;
    s.failures_per_mille = 3;
    s.geometry.blocks_per_plane += 3;
  }
  if (rng.below(3) == 0) {  // with pages of four entries, each page that moves may change another translation page
    c.map_cache_entries = 1 + rng.below(12);
    c.over_provisioning = std::max(c.over_provisioning, 0.6);
    ++s.geometry.blocks_per_plane;
  }
  s.filled = std::array{0.0, 1.0, 2.0}[rng.below(3)];
  return s;
}

std::uint32_t number(Rng& rng) { return static_cast<std::uint32_t>(rng.below(1u << 20)); }

Step random_step(Rng& rng, std::uint32_t cut_weight) {
  const std::uint64_t draw = rng.below(100 + cut_weight);
  const Kind kind = draw < 30    ? Kind::write
                    : draw < 35  ? Kind::fua_write
                    : draw < 41  ? Kind::trim
                    : draw < 43  ? Kind::read
                    : draw < 46  ? Kind::flush
                    : draw < 96  ? Kind::complete
                    : draw < 100 ? Kind::background
                                 : Kind::cut;
  Step step{kind, {number(rng), rng.below(2) == 0 ? 0 : number(rng), number(rng)}};
  // Half of the writes go to a few units, so that versions follow one another.
  if (rng.below(2) == 0) step.n[0] %= 4;
  if (kind == Kind::complete || kind == Kind::cut) step.n[0] = number(rng);
  return step;
}

/// Drives without what the violation does not need.
void reduce_setup(Case& c) {
  const auto attempt = [&](auto change) {
    Case smaller = c;
    change(smaller.setup);
    if (breaks(smaller)) c = std::move(smaller);
  };
  attempt([](Setup& s) { s.failures_per_mille = 0; });
  attempt([](Setup& s) { s.filled = 0; });
  attempt([](Setup& s) { s.config.background_free_blocks = 0; });
  attempt([](Setup& s) { s.config.wear_spread = 0; });
  attempt([](Setup& s) { s.config.pads = false; });
  attempt([](Setup& s) { s.config.map_cache_entries.reset(); });
  attempt([](Setup& s) { s.gc = {}; });
  attempt([](Setup& s) { s.geometry.channels = 1; });
  attempt([](Setup& s) { s.geometry.planes_per_die = 1; });
}

}  // namespace

Counterexample shrink(const Case& c) { return shrink_with(c, reduce_setup); }

Report search_randomly(const SearchOptions& options) {
  return search_cases<Report>(options.seed, options.cuts, [&](Rng& rng) {
    Case c{random_setup(rng, options), {}};
    const std::uint32_t cut_weight = std::array{2u, 5u, 20u}[rng.below(3)];
    const std::uint64_t steps = 20 + rng.below(400);
    for (std::uint64_t i = 0; i < steps; ++i) c.steps.push_back(random_step(rng, cut_weight));
    return c;
  });
}

Report search_exhaustively(std::uint32_t commands, const SearchOptions& options) {
  std::vector<Step> alphabet{{Kind::flush, {}}};
  for (const std::uint32_t address : {0u, 1u})
    for (const Kind kind : {Kind::write, Kind::fua_write, Kind::trim}) alphabet.push_back({kind, {address, 0, 0}});
  const auto lines = options.units_per_program ? std::vector{*options.units_per_program} : std::vector{1u, 3u};
  const auto protections = options.capacitors ? std::vector<int>{*options.capacitors} : std::vector<int>{0, 1};
  // New drives, drives that collect, and those of which the map is cached.
  constexpr std::array<std::pair<double, bool>, 3> kinds{{{0.0, false}, {1.5, false}, {1.5, true}}};
  Report report;
  for (const int capacitors : protections)
    for (const std::uint32_t line : lines)
      for (const auto& [filled, cached] : kinds) {
        Case c;
        c.setup.capacitors = capacitors != 0;
        c.setup.filled = filled;
        c.setup.config.units_per_program = line;
        c.setup.config.volatile_lines = capacitors == 0;
        c.setup.geometry = {1, 1, filled > 0 ? 1u : 2u, 6, line * 2, Bytes{16}};
        if (cached) {
          c.setup.config.map_cache_entries = 1;
          c.setup.config.over_provisioning = 0.6;
          c.setup.geometry.blocks_per_plane = 8;
        }
        const auto run = [&](const Case& tried, bool only_steps) {
          CaseResult result = run_case(tried, false, only_steps);
          ++report.cases;
          report.coverage += result.coverage;
          if (result.violation && !report.broken) report.broken = shrink(tried);
          return result;
        };
        explore(
            c, commands, alphabet, run, [](const CaseResult&) { return true; },
            [&] { return report.broken.has_value(); });
        if (report.broken) return report;
      }
  return report;
}

}  // namespace csdsim::ftl::durability
