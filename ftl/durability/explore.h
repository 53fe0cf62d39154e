// The search that both namespaces share: all continuations of a case, and making a case small.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "ftl/durability/case.h"

namespace csdsim::ftl::durability {

/// A case in which something does not hold, and from which nothing more can be removed.
template <class CaseOf>
struct CounterexampleOf {
  CaseOf smallest;
  Violation violation;
  std::vector<std::string> history;
};

template <class CaseOf>
bool breaks(const CaseOf& c) {
  return run_case(c, false).violation.has_value();
}

/// Removes runs of steps, long ones first, as long as the case stays broken.
template <class CaseOf>
void remove_steps(CaseOf& c) {
  for (std::size_t run = std::max<std::size_t>(1, c.steps.size() / 2);; run /= 2) {
    bool removed = false;
    for (std::size_t at = 0; at < c.steps.size();) {
      CaseOf smaller = c;
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
template <class CaseOf>
void reduce_numbers(CaseOf& c) {
  for (std::size_t at = 0; at < c.steps.size(); ++at)
    for (std::size_t i = 0; i < c.steps[at].n.size(); ++i)
      for (const std::uint32_t value : {0u, 1u, 2u, 3u}) {
        if (c.steps[at].n[i] <= value) break;
        CaseOf smaller = c;
        smaller.steps[at].n[i] = value;
        if (!breaks(smaller)) continue;
        c = std::move(smaller);
        break;
      }
}

/// Removes what the violation does not need. `reduce_setup` does so with the drive.
template <class CaseOf, class Reduce>
CounterexampleOf<CaseOf> shrink_with(const CaseOf& c, const Reduce& reduce_setup) {
  CaseOf smallest = c;
  if (breaks(smallest)) {
    remove_steps(smallest);
    reduce_setup(smallest);
    reduce_numbers(smallest);
    remove_steps(smallest);
  }
  auto result = run_case(smallest, true);
  return {std::move(smallest), result.violation.value_or(Violation{"does not happen again", 0}),
          std::move(result.history)};
}

/// The counterexample as text: the drive, what happened, what does not hold.
template <class CaseOf>
std::string to_text(const CounterexampleOf<CaseOf>& c) {
  std::string text = fmt::format("drive: {}\n", to_string(c.smallest.setup));
  for (const std::string& line : c.history) text += "  " + line + "\n";
  text +=
      c.violation.step < c.smallest.steps.size()
          ? fmt::format("then, in step {} of {}: {}\n", c.violation.step + 1, c.smallest.steps.size(), c.violation.what)
          : fmt::format("then, in the phase without faults after all {} steps: {}\n", c.smallest.steps.size(),
                        c.violation.what);
  return text;
}

/// Tries all continuations of a case that has `commands` left, each with all cuts. `run(case, only_steps)` runs one and
/// returns its result; once `broken()` holds, the search ends. Where a result is not `is_new()`, a case like this one
/// has been continued already.
template <class CaseOf, class StepOf, class Run, class IsNew, class Stop>
void explore(CaseOf& c, std::uint32_t commands, const std::vector<StepOf>& alphabet, const Run& run,
             const IsNew& is_new, const Stop& broken) {
  if (broken()) return;
  const auto here = run(c, true);
  if (!is_new(here)) return;
  const std::size_t ready = here.ready;
  const auto with = [&](const StepOf& step, const auto& then) {
    if (broken()) return;
    c.steps.push_back(step);
    then();
    c.steps.pop_back();
  };
  std::uint32_t fates = 1;
  for (std::size_t i = 0; i < ready; ++i) fates *= 3;
  for (std::uint32_t fate = 0; fate < fates; ++fate)  // one of those with equal steps goes on afterwards
    with({StepOf::Kind::cut, {fate, 0, 0}}, [&] { run(c, fate > 0); });
  for (std::uint32_t i = 0; i < ready; ++i)
    with({StepOf::Kind::complete, {i, 0, 0}}, [&] { explore(c, commands, alphabet, run, is_new, broken); });
  if (commands == 0) return;
  for (const StepOf& command : alphabet)
    with(command, [&] { explore(c, commands - 1, alphabet, run, is_new, broken); });
}

/// Runs random cases until they have had so many cuts, or one is broken: case `number` is draw(rng of that number).
template <class ReportOf, class Draw>
ReportOf search_cases(std::uint64_t seed, std::uint64_t cuts, Draw&& draw) {
  ReportOf report;
  for (std::uint64_t number = 0; report.coverage.cuts < cuts && !report.broken; ++number) {
    Rng rng(counter_random(seed, number));
    const auto c = draw(rng);
    const auto result = run_case(c, false);
    ++report.cases;
    report.coverage += result.coverage;
    if (result.violation) report.broken = shrink(c);
  }
  return report;
}

}  // namespace csdsim::ftl::durability
