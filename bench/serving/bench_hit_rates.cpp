// Blocks that a curve looks up per second: each is looked up, used if it is there, stored if not, and others are
// evicted for it. Host wall time, one core; the goal is 10 million per second with LRU.
#include <benchmark/benchmark.h>

#include "host_runtime/core/serving/policy_registry.h"
#include "tests/serving/generated_requests.h"

namespace {

using namespace csdsim;
using namespace csdsim::host;

/// As many blocks as an hour of a chat service: 288,500 in Mooncake's conversation trace.
const test::GeneratedRequests& trace() {
  static const test::GeneratedRequests requests(1, 12'000);
  return requests;
}

void replay_trace(benchmark::State& state, const char* policy) {
  const std::optional<std::uint64_t> capacity =
      state.range(0) > 0 ? std::optional<std::uint64_t>(state.range(0)) : std::nullopt;
  PrefixHits hits;
  double bytes = 0;
  for (auto _ : state) {
    KvBlockManager tier({capacity, SimTime::max()}, builtin_eviction_policies().at(policy)({capacity, {}}),
                        builtin_admission_policies().at("always")({capacity, {}}));
    hits = replay(trace().requests(), test::kBlockTokens, tier);
    bytes = static_cast<double>(tier.memory()) / static_cast<double>(tier.usage().taken);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(hits.blocks));
  state.counters["hit_rate"] = static_cast<double>(hits.hit_blocks) / static_cast<double>(hits.blocks);
  state.counters["bytes_per_block"] = bytes;
}

void register_all() {
  for (const char* policy : {"lru", "fifo", "lfu", "arc", "s3fifo"})
    for (const std::int64_t capacity : {1000, 20'000, 0})  // 0: unlimited
      benchmark::RegisterBenchmark(policy, replay_trace, policy)->Arg(capacity)->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
