// Numerics in pages a second (4 KiB pages of K and V, from DRAM), the scheduler in head jobs a second.
#include <benchmark/benchmark.h>

#include "attention_engine/core/attention.h"
#include "attention_engine/core/head_scheduler.h"
#include "attention_engine/core/selection.h"
#include "attention_engine/core/sparf.h"
#include "tests/attention_engine/fake_flash.h"
#include "tests/attention_engine/memory_kv_source.h"

namespace csdsim::engine {
namespace {

using test::FakeFlash;
using test::MemoryKvSource;

constexpr std::uint32_t kTokens = 1024;

HeadKey head(std::uint32_t h) { return {SequenceId{0}, LayerId{0}, KvHead{h}}; }

/// Heads whose K and V take `megabytes`.
std::uint32_t fill(MemoryKvSource& source, std::uint32_t d, std::uint32_t megabytes) {
  const std::uint32_t heads = megabytes * (1u << 20) / (2 * kTokens * d * 2);
  for (std::uint32_t h = 0; h < heads; ++h) {
    source.add(head(h), {.tokens = kTokens, .head_dim = d, .embedding_group = 8}, h);
  }
  return heads;
}

void dense(benchmark::State& state) {
  const auto d = static_cast<std::uint32_t>(state.range(0));
  const auto group = static_cast<std::uint32_t>(state.range(1));
  MemoryKvSource source;
  const std::uint32_t heads = fill(source, d, static_cast<std::uint32_t>(state.range(2)));
  const auto q = test::random_query(group * d, 1);
  std::vector<float> out(q.size());
  DenseAttention attention;
  std::uint32_t h = 0;
  for (auto _ : state) {
    attention.attend(source, head(h), q, group, out);
    benchmark::DoNotOptimize(out.data());
    h = h + 1 == heads ? 0 : h + 1;
  }
  const auto bytes = static_cast<double>(state.iterations()) * 2 * kTokens * d * 2;
  state.counters["pages/s"] = benchmark::Counter(bytes / 4096, benchmark::Counter::kIsRate);
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
}
BENCHMARK(dense)->ArgNames({"d", "G", "MiB"})->ArgsProduct({{64, 128}, {1, 4}, {1, 256}});

void sparf(benchmark::State& state) {
  const auto d = static_cast<std::uint32_t>(state.range(0));
  MemoryKvSource source;
  const std::uint32_t heads = fill(source, d, 256);
  const auto q = test::random_query(d, 1);
  std::vector<float> out(q.size());
  SparfAttention attention;
  std::uint32_t h = 0;
  for (auto _ : state) {
    attention.select_components(source.view(head(h)), {.r = d / 8, .k = kTokens / 8, .l = kTokens / 32}, q, 1);
    attention.score_tokens(source, head(h));
    attention.select_tokens();
    attention.attend(source, head(h), out);
    benchmark::DoNotOptimize(out.data());
    h = h + 1 == heads ? 0 : h + 1;
  }
  state.counters["heads/s"] = benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(sparf)->ArgName("d")->Arg(64)->Arg(128);

/// One command of 40 heads, timing only, flash of unlimited speed.
void scheduler(benchmark::State& state) {
  const auto method = static_cast<Method>(state.range(0));
  MemoryKvSource source;
  std::vector<HeadJob> jobs(40);
  for (std::uint32_t h = 0; h < jobs.size(); ++h) {
    source.add(head(h), {.tokens = 1536, .head_dim = 128, .embedding_group = 2}, h);
    jobs[h] = {.key = head(h), .method = method, .sparf = {.r = 16, .k = 192, .l = 48}};
  }
  ClusteredSelection selection(0.25, 1);
  TimingWork work(selection);
  FakeFlash flash;
  HeadScheduler engine({}, source, work, flash);
  SimTime now;
  for (auto _ : state) {
    flash.reads.clear();
    engine.submit(jobs, now);
    now = flash.run(engine);
  }
  const auto count = static_cast<double>(engine.stats().jobs());
  state.counters["jobs/s"] = benchmark::Counter(count, benchmark::Counter::kIsRate);
  state.counters["pages/s"] =
      benchmark::Counter(static_cast<double>(engine.stats().pages()), benchmark::Counter::kIsRate);
}
BENCHMARK(scheduler)->ArgName("sparf")->Arg(0)->Arg(1);

}  // namespace
}  // namespace csdsim::engine

BENCHMARK_MAIN();
