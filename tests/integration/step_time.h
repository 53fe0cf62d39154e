// The time of a decode step of a whole run, without what the prefill leaves behind.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"

namespace csdsim::test {

/// When each decode step of a whole run has sampled, [step].
inline std::map<std::uint32_t, SimTime> sampled_steps(const scenario::Scenario& s) {
  std::map<std::uint32_t, SimTime> sampled;
  experiment::GenerationHooks hooks;
  hooks.operation = [&](const host::OperationRecord& r) {
    if (r.kind == host::OpKind::sample && r.tag.phase == host::Phase::decode)
      sampled[r.tag.step] = std::max(sampled[r.tag.step], r.end);
  };
  const auto& workload = experiment::generation_of(s);
  experiment::run_generation(experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens)),
                             hooks);
  return sampled;
}

/// Seconds of a decode step when the copies ahead of it no longer have the time of the prefill: the mean of all steps
/// but the first two.
inline double steady_step_s(const scenario::Scenario& s) {
  const auto sampled = sampled_steps(s);
  const auto last = std::prev(sampled.end());
  return (last->second - sampled.at(1)).seconds() / (last->first - 1);
}

/// The mean of the steps of the second half but the last one. What ran ahead in the prefill has been used up by then,
/// and the last step has nothing to run ahead for.
inline double settled_step_s(const scenario::Scenario& s) {
  const auto sampled = sampled_steps(s);
  const std::uint32_t last = std::prev(sampled.end())->first - 1, half = last / 2 + 1;
  return (sampled.at(last) - sampled.at(half)).seconds() / (last - half);
}

}  // namespace csdsim::test
