// Where `check` accepts the smallest or the largest value of a parameter, `run` accepts it, too.
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "parameter_probes.h"

namespace test_range_ends {

using namespace csdsim;
using namespace parameter_probes;

namespace {

/// What is wrong with a run of a checked scenario, within a little processor time; empty if it has ended, or goes on.
/// In a process of its own, because a run at the end of a range may take any time, or crash.
std::string error_of_run(const scenario::Scenario& scenario) {
  constexpr suseconds_t kMicroseconds = 30'000;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  REQUIRE(child != -1);
  if (child == 0) {
    const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = kMicroseconds}};
    ::setitimer(ITIMER_PROF, &limit, nullptr);
    std::string error;
    try {
      experiment::run_scenario(scenario);
    } catch (const std::exception& e) {
      error = e.what();
    }
    const ssize_t written = ::write(ends[1], error.data(), error.size());
    ::_exit(written < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string error;
  char buffer[512];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) error.append(buffer, std::size_t(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGPROF) return "signal " + std::to_string(WTERMSIG(status));
  return error;
}

}  // namespace

TEST_CASE("check refuses the ends of ranges that a run would refuse") {
  std::map<std::string, std::string> ranges;
  for (const config::ParamRow& row : config::ParamTable::of(scenario::Scenario(experiment::builtin_registries())).rows)
    for (const std::string& name : names_of(row)) ranges[name] = row.range;
  std::uint32_t ends = 0, checked = 0;
  for (const Probe& probe : probes()) {
    const std::string& range = ranges[std::string(probe.parameter)];
    const std::size_t to = range.find(" to ");
    if (to == std::string::npos || probe.effect == Effect::refused) continue;
    const std::string path(probe.parameter.substr(0, probe.parameter.find(" (")));
    for (const std::string& end : {range.substr(0, to), range.substr(to + 4)}) {
      ++ends;
      std::vector<std::string> sets = probe.with;
      sets.push_back(path + "=" + end);
      std::optional<scenario::Loaded> loaded;
      try {
        loaded = experiment::load_scenario_text(scenario_text(probe.base), "probe.yaml", CSDSIM_SOURCE_DIR, sets);
      } catch (const UserError&) {  // check has refused it
        continue;
      }
      ++checked;
      INFO(probe.parameter << " = " << end << " on " << probe.base << ", range " << range);
      CHECK(error_of_run(loaded->base.scenario) == "");
    }
  }
  CAPTURE(ends, checked);
  CHECK(checked > 550);
}

}  // namespace test_range_ends
