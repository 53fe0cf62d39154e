// One step of one layer of one sequence: the important tokens of the locality model, and the pools. The argument is the
// context; HillInfer's longest is 36,864 tokens.
#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "host_runtime/core/features/token_pools/model/token_locality.h"
#include "host_runtime/core/features/token_pools/model/token_pools.h"

namespace {

using namespace csdsim;
using namespace csdsim::host;

constexpr std::uint32_t kLists = 16;  // steps that are drawn ahead

std::vector<std::vector<std::uint32_t>> lists_of(std::uint32_t context) {
  TokenLocalityModel model({}, 1);
  std::vector<std::vector<std::uint32_t>> lists(kLists);
  for (auto& list : lists) model.next(SequenceId{0}, LayerId{0}, context, context / 5, list);
  return lists;
}

void pool_step(benchmark::State& state) {
  const auto context = static_cast<std::uint32_t>(state.range(0));
  const auto lists = lists_of(context);
  TokenPools pools({.hot_tokens = context * 3 / 5, .pinned = {1, 10}, .kept_hot = {1, 5}});
  std::vector<std::uint32_t> hot(context / 2);
  std::iota(hot.begin(), hot.end(), context - context / 2);
  pools.start(context, hot);
  std::uint32_t step = 0;
  for (auto _ : state) benchmark::DoNotOptimize(pools.step(lists[step++ % kLists]).demoted.size());
}

void locality_step(benchmark::State& state) {
  const auto context = static_cast<std::uint32_t>(state.range(0));
  TokenLocalityModel model({}, 1);
  std::vector<std::uint32_t> list;
  for (auto _ : state) model.next(SequenceId{0}, LayerId{0}, context, context / 5, list);
}

BENCHMARK(pool_step)->Arg(2048)->Arg(36864)->Unit(benchmark::kMicrosecond);
BENCHMARK(locality_step)->Arg(2048)->Arg(36864)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
