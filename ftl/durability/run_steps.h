// Executes the steps of a case, in both namespaces.
#pragma once

#include <cstddef>
#include <exception>

#include "ftl/durability/case.h"
#include "ftl/durability/flash_queue.h"

namespace csdsim::ftl::durability {

/// Executes the steps of a case on `run`, a drive that has just been made.
template <class Result, class Run, class CaseOf>
Result run_steps(Run run, const CaseOf& c, bool only_steps) {
  Result result;
  std::size_t at = 0;
  try {
    if constexpr (requires { run.fill(); }) run.fill();
    for (; at < c.steps.size(); ++at) run.step(c.steps[at]);
    result.ready = run.ready();
    if constexpr (requires { result.state; }) result.state = run.state();
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
