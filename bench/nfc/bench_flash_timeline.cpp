#include <benchmark/benchmark.h>

#include <vector>

#include "nfc/core/flash_timeline.h"

namespace csdsim::nfc {
namespace {

/// xorshift64*: cheap enough not to show up beside 60 ns of work.
struct Random {
  std::uint64_t state = 88172645463325252ULL;
  std::uint64_t operator()() {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717ULL;
  }
};

/// Random page reads at saturation: `depth` reads are always in flight, each its own batch.
void timeline_random_reads(benchmark::State& state) {
  FlashGeometry geometry;
  geometry.channels = static_cast<std::uint32_t>(state.range(0));
  geometry.dies_per_channel = static_cast<std::uint32_t>(state.range(1));
  geometry.planes_per_die = static_cast<std::uint32_t>(state.range(2));
  FlashTimeline timeline(geometry, FlashTiming{});
  Random random;
  const std::uint64_t pages = geometry.pages();
  const auto submit = [&](SimTime at) {
    const auto page = static_cast<std::uint64_t>((static_cast<unsigned __int128>(random()) * pages) >> 64);
    const PageOp op{{page}, PageOpKind::read, OpClass::host, 4096};
    timeline.submit({&op, 1}, at);
  };
  for (std::uint32_t i = 0; i < 8 * geometry.planes(); ++i) submit(SimTime{});
  std::vector<FlashCompletion> done;
  std::int64_t ops = 0;
  for (auto _ : state) {
    const SimTime now = timeline.run(SimTime::max());
    done.clear();
    timeline.take_completions(now, done);
    for (std::size_t i = 0; i < done.size(); ++i) submit(now);
    ops += static_cast<std::int64_t>(done.size());
  }
  state.SetItemsProcessed(ops);
}
BENCHMARK(timeline_random_reads)
    ->ArgNames({"channels", "dies", "planes"})
    ->Args({8, 8, 2})
    ->Args({2, 2, 2})
    ->Args({4, 8, 2})
    ->Args({8, 8, 4})
    ->Args({16, 16, 4})
    ->Args({64, 8, 2})
    ->Args({1, 256, 4});

}  // namespace
}  // namespace csdsim::nfc

BENCHMARK_MAIN();
