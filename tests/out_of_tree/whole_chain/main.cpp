// Links the last library of the chain, and with it the private dependencies of all the others (YAML, BLAS, tokenizer).
#include <cstdio>
#include <systemc>

#include "experiment/experiments.h"
#include "experiment/runner.h"

int sc_main(int, char*[]) {
  const auto loaded = csdsim::experiment::load_scenario_text(R"(
csdsim: 1
name: installed
platform: {device: {flash: {channels: 1, dies_per_channel: 1, planes_per_die: 1, blocks_per_plane: 64}}}
workload: {kind: block_io, pattern: random_read, request_size: 4 KiB, queue_depth: 4, requests: 100, working_set: 0.5}
)",
                                                             "installed.yaml", ".");
  const csdsim::scenario::RunResult result = csdsim::experiment::run_scenario(loaded.base.scenario);
  const auto completed = result.document.at("metrics").at("requests_completed").get<int>();
  std::printf("%d requests completed %s\n", completed, result.failure.c_str());
  return completed == 100 && result.failure.empty() ? 0 : 1;
}
