// Speed of real tokens through the simulated drive, and of a timing-only run.
#include <benchmark/benchmark.h>

#include <chrono>
#include <systemc>

#include "tests/integration/small_model.h"

namespace {

using namespace csdsim;
using Clock = std::chrono::steady_clock;

/// Decode steps at about 1,000 tokens of context, data carried: wall time from the first sampled token to the last.
void carried_decode(benchmark::State& state, const char* system) {
  constexpr std::uint32_t kTokens = 65;
  const test::Prompts prompts{test::text_prompt(968, 100)};
  for (auto _ : state) {
    Clock::time_point first;
    Clock::time_point last;
    experiment::GenerationHooks hooks;
    hooks.operation = [&](const host::OperationRecord& r) {
      if (r.kind != host::OpKind::sample) return;
      last = Clock::now();
      if (r.tag.phase == host::Phase::prefill) first = last;
    };
    test::decode_in_drive(test::small_setup(test::small_drive(), prompts, kTokens, system), prompts, {}, hooks);
    state.SetIterationTime(std::chrono::duration<double>(last - first).count());
  }
  state.counters["tokens/s"] = benchmark::Counter(kTokens - 1.0, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(carried_decode, dense, "instinfer-dense")->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(2);
BENCHMARK_CAPTURE(carried_decode, sparf, "instinfer-sparf")->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(2);

}  // namespace

int sc_main(int argc, char* argv[]) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
