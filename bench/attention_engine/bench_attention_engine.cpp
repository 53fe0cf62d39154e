// Numerics in pages per second (4 KiB pages of K and V, from DRAM), the scheduler in head jobs per second.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <random>

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

void count_pages(benchmark::State& state, double pages) {
  state.counters["pages/s"] = benchmark::Counter(pages, benchmark::Counter::kIsRate);
  state.SetBytesProcessed(static_cast<std::int64_t>(pages * 4096));
}

/// One head after the other; pages of 4 KiB.
void attend_densely(benchmark::State& state, const KvSource& source, std::uint32_t heads, std::uint32_t d,
                    std::uint32_t group) {
  const auto q = test::random_query(group * d, 1);
  std::vector<float> out(q.size());
  DenseAttention attention;
  std::uint32_t h = 0;
  for (auto _ : state) {
    attention.attend(source, head(h), q, group, out);
    benchmark::DoNotOptimize(out.data());
    h = h + 1 == heads ? 0 : h + 1;
  }
  count_pages(state, static_cast<double>(state.iterations()) * 2 * kTokens * d * 2 / 4096);
}

void dense(benchmark::State& state) {
  const auto d = static_cast<std::uint32_t>(state.range(0));
  const auto group = static_cast<std::uint32_t>(state.range(1));
  MemoryKvSource source;
  const std::uint32_t heads = fill(source, d, static_cast<std::uint32_t>(state.range(2)));
  attend_densely(state, source, heads, d, group);
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

/// Heads whose pages lie anywhere in `megabytes`, as those of a drive do.
class ScatteredKvSource final : public KvSource {
 public:
  ScatteredKvSource(std::uint32_t d, std::uint32_t megabytes) : d_(d), data_(megabytes * (1ull << 20) / sizeof(Half)) {
    std::mt19937_64 rng(1);
    for (std::size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<Half>(i * 40503 & 0xBBFF);  // finite
    pages_.resize(data_.size() / kPage);
    std::iota(pages_.begin(), pages_.end(), 0u);
    std::shuffle(pages_.begin(), pages_.end(), rng);
  }
  std::uint32_t heads() const { return static_cast<std::uint32_t>(data_.size() / (2 * kTokens * d_)); }
  std::span<const std::uint32_t> pages() const { return pages_; }
  const Half* page(std::uint32_t p) const { return data_.data() + std::size_t{p} * kPage; }

  KvHeadView view(HeadKey) const override {
    return {.tokens = kTokens, .head_dim = d_, .tokens_per_page = kPage / d_, .flushed_tokens = kTokens};
  }
  void plan_token_groups(HeadKey, KvRows, std::span<const std::uint32_t>, std::span<const std::uint32_t>,
                         ReadPlan&) override {}
  void plan_embedding_groups(HeadKey, std::span<const std::uint32_t>, std::span<const std::uint32_t>,
                             ReadPlan&) override {}
  const Half* token_rows(HeadKey key, KvKind kind, std::uint32_t group) const override {
    const std::size_t per_kind = kTokens * d_ / kPage;
    return page(pages_[(key.head.value * 2 + (kind == KvKind::value ? 1 : 0)) * per_kind + group]);
  }
  const Half* embedding_page(HeadKey, std::uint32_t, std::uint32_t) const override { return nullptr; }
  std::span<const float> value_mean(HeadKey) const override { return {}; }

  static constexpr std::uint32_t kPage = 2048;  ///< halves

 private:
  std::uint32_t d_;
  std::vector<Half> data_;
  std::vector<std::uint32_t> pages_;
};

void dense_scattered(benchmark::State& state) {
  const auto d = static_cast<std::uint32_t>(state.range(0));
  const auto group = static_cast<std::uint32_t>(state.range(1));
  const ScatteredKvSource source(d, 1024);
  attend_densely(state, source, source.heads(), d, group);
}
BENCHMARK(dense_scattered)->ArgNames({"d", "G"})->ArgsProduct({{64, 128}, {1, 4}});

/// What the machine can do at most: the same pages, their words only summed, kAbreast pages at a time.
template <std::size_t kAbreast>
void read_scattered(benchmark::State& state) {
  const ScatteredKvSource source(128, 1024);
  std::size_t p = 0;
  for (auto _ : state) {
    std::uint64_t sum[kAbreast * 8] = {};
    const std::uint64_t* words[kAbreast];
    for (std::size_t a = 0; a < kAbreast; ++a) {
      words[a] = reinterpret_cast<const std::uint64_t*>(source.page(source.pages()[p + a]));
    }
    for (std::size_t i = 0; i < ScatteredKvSource::kPage / 4; i += 8) {
      for (std::size_t a = 0; a < kAbreast; ++a) {
        for (std::size_t w = 0; w < 8; ++w) sum[a * 8 + w] += words[a][i + w];
      }
    }
    benchmark::DoNotOptimize(sum);
    p = p + 2 * kAbreast > source.pages().size() ? 0 : p + kAbreast;
  }
  count_pages(state, static_cast<double>(state.iterations() * kAbreast));
}
BENCHMARK_TEMPLATE(read_scattered, 1);
BENCHMARK_TEMPLATE(read_scattered, 4);

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
