#include "ftl/durability/search.h"

#include <fmt/format.h>

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

bool breaks(const Case& c) { return run_case(c, false).violation.has_value(); }

/// Removes runs of steps, long ones first, as long as the case stays broken.
void remove_steps(Case& c) {
  for (std::size_t run = std::max<std::size_t>(1, c.steps.size() / 2);; run /= 2) {
    bool removed = false;
    for (std::size_t at = 0; at < c.steps.size();) {
      Case smaller = c;
      const auto first = smaller.steps.begin() + static_cast<std::ptrdiff_t>(at);
      smaller.steps.erase(first, first + static_cast<std::ptrdiff_t>(std::min(run, c.steps.size() - at)));
      if (breaks(smaller)) {
        c = std::move(smaller);
        removed = true;
      } else {
        at += run;
      }
    }
    if (run == 1 && !removed) return;
    if (run == 1) run = 2;
  }
}

/// Tries 0, and smaller numbers, in the steps.
void reduce_numbers(Case& c) {
  for (std::size_t at = 0; at < c.steps.size(); ++at)
    for (std::size_t i = 0; i < c.steps[at].n.size(); ++i)
      for (const std::uint32_t value : {0u, 1u, 2u, 3u}) {
        if (c.steps[at].n[i] <= value) break;
        Case smaller = c;
        smaller.steps[at].n[i] = value;
        if (!breaks(smaller)) continue;
        c = std::move(smaller);
        break;
      }
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
  attempt([](Setup& s) { s.gc = {}; });
  attempt([](Setup& s) { s.geometry.channels = 1; });
  attempt([](Setup& s) { s.geometry.planes_per_die = 1; });
}

/// Tries all continuations of a case that has `commands` left, each with all cuts.
class Exhaustive {
 public:
  Exhaustive(Report& report, const std::vector<Step>& alphabet) : report_(report), alphabet_(alphabet) {}

  void explore(Case& c, std::uint32_t commands) {
    const CaseResult here = run(c, true);
    if (report_.broken) return;
    std::uint32_t fates = 1;
    for (std::size_t i = 0; i < here.ready; ++i) fates *= 3;
    for (std::uint32_t fate = 0; fate < fates; ++fate)  // of those with equal steps, one goes on afterwards
      with({Kind::cut, {fate, 0, 0}}, c, [&] { run(c, fate > 0); });
    for (std::uint32_t i = 0; i < here.ready; ++i) with({Kind::complete, {i, 0, 0}}, c, [&] { explore(c, commands); });
    if (commands == 0) return;
    for (const Step& command : alphabet_) with(command, c, [&] { explore(c, commands - 1); });
  }

 private:
  CaseResult run(const Case& c, bool only_steps) {
    CaseResult result = run_case(c, false, only_steps);
    ++report_.cases;
    report_.coverage += result.coverage;
    if (result.violation && !report_.broken) report_.broken = shrink(c);
    return result;
  }
  template <class Then>
  void with(const Step& step, Case& c, const Then& then) {
    if (report_.broken) return;
    c.steps.push_back(step);
    then();
    c.steps.pop_back();
  }

  Report& report_;
  const std::vector<Step>& alphabet_;
};

}  // namespace

Counterexample shrink(const Case& c) {
  Case smallest = c;
  if (breaks(smallest)) {
    remove_steps(smallest);
    reduce_setup(smallest);
    reduce_numbers(smallest);
    remove_steps(smallest);
  }
  CaseResult result = run_case(smallest, true);
  return {std::move(smallest), result.violation.value_or(Violation{"does not happen again", 0}),
          std::move(result.history)};
}

Report search_randomly(const SearchOptions& options) {
  Report report;
  for (std::uint64_t number = 0; report.coverage.cuts < options.cuts && !report.broken; ++number) {
    Rng rng(counter_random(options.seed, number));
    Case c{random_setup(rng, options), {}};
    const std::uint32_t cut_weight = std::array{2u, 5u, 20u}[rng.below(3)];
    const std::uint64_t steps = 20 + rng.below(400);
    for (std::uint64_t i = 0; i < steps; ++i) c.steps.push_back(random_step(rng, cut_weight));
    const CaseResult result = run_case(c, false);
    ++report.cases;
    report.coverage += result.coverage;
    if (result.violation) report.broken = shrink(c);
  }
  return report;
}

Report search_exhaustively(std::uint32_t commands, const SearchOptions& options) {
  std::vector<Step> alphabet{{Kind::flush, {}}};
  for (const std::uint32_t address : {0u, 1u})
    for (const Kind kind : {Kind::write, Kind::fua_write, Kind::trim}) alphabet.push_back({kind, {address, 0, 0}});
  const auto lines = options.units_per_program ? std::vector{*options.units_per_program} : std::vector{1u, 3u};
  const auto protections = options.capacitors ? std::vector<int>{*options.capacitors} : std::vector<int>{0, 1};
  Report report;
  for (const int capacitors : protections)
    for (const std::uint32_t line : lines)
      for (const double filled : {0.0, 1.5}) {
        Case c;
        c.setup.capacitors = capacitors != 0;
        c.setup.filled = filled;
        c.setup.config.units_per_program = line;
        c.setup.config.volatile_lines = capacitors == 0;
        c.setup.geometry = {1, 1, filled > 0 ? 1u : 2u, 6, line * 2, Bytes{16}};
        Exhaustive(report, alphabet).explore(c, commands);
        if (report.broken) return report;
      }
  return report;
}

std::string to_text(const Counterexample& c) {
  std::string text = fmt::format("drive: {}\n", to_string(c.smallest.setup));
  for (const std::string& line : c.history) text += "  " + line + "\n";
  text +=
      c.violation.step < c.smallest.steps.size()
          ? fmt::format("then, in step {} of {}: {}\n", c.violation.step + 1, c.smallest.steps.size(), c.violation.what)
          : fmt::format("then, in the phase without faults after all {} steps: {}\n", c.smallest.steps.size(),
                        c.violation.what);
  return text;
}

}  // namespace csdsim::ftl::durability
