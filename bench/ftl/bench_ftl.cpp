// Throughput and memory of the mapping: lookups, pages per second through append, plan and block writes, bytes per
// page. Rates are host wall time, one core.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/rng.h"
#include "ftl/block/block_ftl.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/policies/instinfer.h"

namespace {

using namespace csdsim;
using namespace csdsim::ftl;

// The drive of the OPT-13B scenarios.
const FlashGeometry kGeometry{8, 8, 4, 4096, 256, Bytes::kib(4)};
constexpr std::uint32_t kHeads = 40;
constexpr std::uint32_t kSequences = 16;
constexpr std::uint32_t kTokens = 2048;

struct KvDrive {
  explicit KvDrive(const FlashGeometry& g, DataMode mode)
      : blocks(g, {0, g.blocks_per_plane}),
        store(g, mode),
        dram(Bytes::gib(64)),
        ftl({TailPolicy::token_index, {2}}, blocks, store, dram, std::make_unique<InstinferPolicy>(g)) {}

  void create(std::uint32_t sequences, std::uint32_t heads) {
    for (std::uint32_t s = 0; s < sequences; ++s) ftl.create_sequence(SequenceId{s}, {1, heads, 128, kTokens});
  }

  /// Appends to all heads of one sequence and completes the flushes; returns the pages programmed.
  std::int64_t append(std::uint32_t sequence, std::uint32_t heads, std::uint32_t first, std::uint32_t count,
                      std::span<const Half> rows = {}) {
    const AppendResult result =
        ftl.append(SequenceId{sequence}, LayerId{0}, TokenIndex{first}, count, {KvHead{0}, heads}, rows, rows);
    std::int64_t pages = 0;
    for (const FlushJob& job : result.jobs) {
      pages += static_cast<std::int64_t>(job.programs.size());
      ftl.flush_done(job.id);
    }
    return pages;
  }

  BlockManager blocks;
  BackingStore store;
  DramBudget dram;
  KvFtl ftl;
};

void append_prefill(benchmark::State& state) {
  std::int64_t pages = 0;
  for (auto _ : state) {
    state.PauseTiming();
    KvDrive drive(kGeometry, DataMode::timing);
    drive.create(kSequences, kHeads);
    state.ResumeTiming();
    for (std::uint32_t s = 0; s < kSequences; ++s) {
      for (std::uint32_t t = 0; t < kTokens; t += 1024) pages += drive.append(s, kHeads, t, 1024);
    }
  }
  state.counters["pages"] = benchmark::Counter(static_cast<double>(pages), benchmark::Counter::kIsRate);
}
BENCHMARK(append_prefill)->Unit(benchmark::kMillisecond);

void append_decode(benchmark::State& state) {
  std::int64_t pages = 0;
  std::int64_t tokens = 0;
  for (auto _ : state) {
    state.PauseTiming();
    KvDrive drive(kGeometry, DataMode::timing);
    drive.create(kSequences, kHeads);
    state.ResumeTiming();
    for (std::uint32_t t = 0; t < 1024; ++t) {
      for (std::uint32_t s = 0; s < kSequences; ++s) pages += drive.append(s, kHeads, t, 1);
    }
    tokens += std::int64_t{1024} * kSequences * kHeads;
  }
  state.counters["pages"] = benchmark::Counter(static_cast<double>(pages), benchmark::Counter::kIsRate);
  state.counters["head_tokens"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}
BENCHMARK(append_decode)->Unit(benchmark::kMillisecond);

void append_carried(benchmark::State& state) {
  constexpr std::uint32_t kFew = 8;
  const std::vector<Half> rows(std::size_t{kFew} * 1024 * 128, Half{0x3C00});
  std::int64_t pages = 0;
  for (auto _ : state) {
    state.PauseTiming();
    KvDrive drive({8, 2, 2, 64, 256, Bytes::kib(4)}, DataMode::carried);
    drive.create(1, kFew);
    state.ResumeTiming();
    for (std::uint32_t t = 0; t < kTokens; t += 1024) pages += drive.append(0, kFew, t, 1024, rows);
  }
  state.counters["pages"] = benchmark::Counter(static_cast<double>(pages), benchmark::Counter::kIsRate);
}
BENCHMARK(append_carried)->Unit(benchmark::kMillisecond);

void plan_dense(benchmark::State& state) {
  KvDrive drive(kGeometry, DataMode::timing);
  drive.create(kSequences, kHeads);
  for (std::uint32_t s = 0; s < kSequences; ++s) drive.append(s, kHeads, 0, kTokens);
  std::vector<std::uint32_t> groups(kTokens / 16);
  std::iota(groups.begin(), groups.end(), 0u);
  ReadPlan plan;
  std::int64_t pages = 0;
  for (auto _ : state) {
    for (std::uint32_t s = 0; s < kSequences; ++s) {
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        plan.clear();
        drive.ftl.plan_token_groups({SequenceId{s}, LayerId{0}, KvHead{h}}, KvRows::both, groups, {}, plan);
        pages += static_cast<std::int64_t>(plan.size());
      }
    }
    benchmark::DoNotOptimize(plan.ops.data());
  }
  state.counters["pages"] = benchmark::Counter(static_cast<double>(pages), benchmark::Counter::kIsRate);
}
BENCHMARK(plan_dense)->Unit(benchmark::kMillisecond);

/// One SparF head: 15 of 64 embedding groups over two windows, a quarter of the token groups.
void plan_sparf(benchmark::State& state) {
  KvDrive drive(kGeometry, DataMode::timing);
  drive.create(kSequences, kHeads);
  for (std::uint32_t s = 0; s < kSequences; ++s) drive.append(s, kHeads, 0, kTokens);
  std::vector<std::uint32_t> embedding;
  for (std::uint32_t i = 0; i < 15; ++i) embedding.push_back(i * 4);
  std::vector<std::uint32_t> groups;
  for (std::uint32_t i = 0; i < 32; ++i) groups.push_back(i * 4);
  ReadPlan plan;
  std::int64_t pages = 0;
  for (auto _ : state) {
    for (std::uint32_t s = 0; s < kSequences; ++s) {
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        const HeadKey key{SequenceId{s}, LayerId{0}, KvHead{h}};
        plan.clear();
        drive.ftl.plan_embedding_groups(key, embedding, {}, plan);
        drive.ftl.plan_token_groups(key, KvRows::both, groups, {}, plan);
        pages += static_cast<std::int64_t>(plan.size());
      }
    }
    benchmark::DoNotOptimize(plan.ops.data());
  }
  state.counters["pages"] = benchmark::Counter(static_cast<double>(pages), benchmark::Counter::kIsRate);
}
BENCHMARK(plan_sparf)->Unit(benchmark::kMillisecond);

/// 256 GiB of flash in 4 KiB pages.
const FlashGeometry kLarge{8, 8, 4, 1024, 256, Bytes::kib(4)};

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Lookups of random pages: of a map that is still a formula (0: sequential, 1: in random order) or filled arrays (2).
void map_lookup(benchmark::State& state) {
  const std::uint64_t pages = kLarge.pages() * 93 / 100;
  PageMap map(kLarge, kChannelDiePlane, pages);
  map.precondition(pages, state.range(0) == 1 ? std::optional<std::uint64_t>(1) : std::nullopt);
  if (state.range(0) == 2) {
    for (std::uint64_t p = 0; p < pages; ++p) map.bind(LogicalPage{p}, map.lookup(LogicalPage{p}));
  }
  Rng rng(1);
  std::uint64_t sum = 0;
  for (auto _ : state) sum += map.lookup(LogicalPage{rng.below(pages)}).value;
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK(map_lookup)->ArgName("state")->DenseRange(0, 2);

/// Memory of a drive with every exported page written.
void memory_all_written(benchmark::State& state) {
  for (auto _ : state) {
    const std::uint64_t before = resident_bytes();
    BlockManager blocks(kLarge, {kLarge.blocks_per_plane, 0});
    BackingStore store(kLarge, DataMode::timing);
    BlockFtl ftl({}, blocks, store);
    const std::uint64_t pages = ftl.capacity().value / 4096;
    for (std::uint64_t i = 0; i < pages; ++i) ftl.write(Bytes{i * 4096}, Bytes{4096});
    const std::uint64_t after = resident_bytes();
    state.counters["resident_MiB"] = static_cast<double>(after - before) / (1 << 20);
    state.counters["bytes_a_page"] = static_cast<double>(after - before) / static_cast<double>(kLarge.pages());
  }
}
BENCHMARK(memory_all_written)->Iterations(1)->Unit(benchmark::kSecond);

/// Uniformly random overwrites without page operations; pages are host pages plus moved ones.
void age_drive(benchmark::State& state) {
  const FlashGeometry g{8, 2, 2, 512, 256, Bytes::kib(4)};
  BlockManager blocks(g, {g.blocks_per_plane, 0});
  BackingStore store(g, DataMode::timing);
  BlockFtl ftl({}, blocks, store);
  ftl.precondition(Bytes{ftl.capacity().value * 8 / 10}, 1);
  ftl.age(2, 1);
  const double host = 0.25 * 0.8 * static_cast<double>(ftl.capacity().value) / 4096;
  double pages = 0;
  std::uint64_t seed = 1;
  for (auto _ : state) {
    const WearStatistics before = blocks.wear();
    ftl.age(0.25, ++seed);
    pages += (blocks.wear().mean - before.mean) * static_cast<double>(g.pages());
  }
  state.counters["host_pages"] =
      benchmark::Counter(host * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["pages"] = benchmark::Counter(pages, benchmark::Counter::kIsRate);
}
BENCHMARK(age_drive)->Unit(benchmark::kMillisecond);

/// Random 4 KiB requests on a drive that is full to 90 %: writes collect garbage, reads do not.
void block_requests(benchmark::State& state) {
  const bool writes = state.range(0) != 0;
  const FlashGeometry g{8, 2, 2, 256, 256, Bytes::kib(4)};
  BlockManager blocks(g, {g.blocks_per_plane, 0});
  BackingStore store(g, DataMode::timing);
  BlockFtl ftl({}, blocks, store);
  const std::uint64_t pages = ftl.capacity().value / 4096 * 9 / 10;
  ftl.precondition(Bytes{pages * 4096}, 1);
  if (writes) ftl.age(3, 1);
  std::mt19937_64 rng(1);
  Phase ops;
  for (auto _ : state) {
    const Bytes offset{rng() % pages * 4096};
    if (writes) {
      benchmark::DoNotOptimize(ftl.write(offset, Bytes{4096}));
    } else {
      ops.clear();
      benchmark::DoNotOptimize(ftl.read(offset, Bytes{4096}, {}, ops));
    }
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
  if (writes) state.counters["write_amplification"] = ftl.stats().write_amplification();
}
BENCHMARK(block_requests)->ArgName("write")->Arg(0)->Arg(1);

}  // namespace

BENCHMARK_MAIN();
