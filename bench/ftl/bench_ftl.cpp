// Throughput of the mapping: pages a second through append, plan and block writes. Rates are host wall time, one core.
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "ftl/core/block_ftl.h"
#include "ftl/core/kv_ftl.h"

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
        ftl({TailPolicy::token_index, 2, PageCheck::key}, blocks, store, dram, std::make_unique<StripedPlacement>(g)) {}

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
  std::vector<PageOp> ops;
  std::int64_t pages = 0;
  for (auto _ : state) {
    for (std::uint32_t s = 0; s < kSequences; ++s) {
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        ops.clear();
        for (const KvKind kind : {KvKind::key, KvKind::value}) {
          drive.ftl.plan_token_groups({SequenceId{s}, LayerId{0}, KvHead{h}}, kind, groups, ops);
        }
        pages += static_cast<std::int64_t>(ops.size());
      }
    }
    benchmark::DoNotOptimize(ops.data());
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
  std::vector<PageOp> ops;
  std::int64_t pages = 0;
  for (auto _ : state) {
    for (std::uint32_t s = 0; s < kSequences; ++s) {
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        const KvKey key{SequenceId{s}, LayerId{0}, KvHead{h}};
        ops.clear();
        drive.ftl.plan_embedding_groups(key, embedding, ops);
        drive.ftl.plan_token_groups(key, KvKind::key, groups, ops);
        drive.ftl.plan_token_groups(key, KvKind::value, groups, ops);
        pages += static_cast<std::int64_t>(ops.size());
      }
    }
    benchmark::DoNotOptimize(ops.data());
  }
  state.counters["pages"] = benchmark::Counter(static_cast<double>(pages), benchmark::Counter::kIsRate);
}
BENCHMARK(plan_sparf)->Unit(benchmark::kMillisecond);

/// Random 4 KiB requests on a drive that is full to 90 %: writes collect garbage, reads do not.
void block_requests(benchmark::State& state) {
  const bool writes = state.range(0) != 0;
  const FlashGeometry g{8, 2, 2, 256, 256, Bytes::kib(4)};
  BlockManager blocks(g, {g.blocks_per_plane, 0});
  BackingStore store(g, DataMode::timing);
  BlockFtl ftl({}, blocks, store);
  const std::uint64_t pages = ftl.capacity().value / 4096 * 9 / 10;
  ftl.precondition(Bytes{pages * 4096}, 1);
  std::mt19937_64 rng(1);
  for (auto _ : state) {
    const Bytes offset{rng() % pages * 4096};
    benchmark::DoNotOptimize(writes ? ftl.write(offset, Bytes{4096}) : ftl.read(offset, Bytes{4096}));
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
  if (writes) state.counters["write_amplification"] = ftl.stats().write_amplification();
}
BENCHMARK(block_requests)->ArgName("write")->Arg(0)->Arg(1);

}  // namespace

BENCHMARK_MAIN();
