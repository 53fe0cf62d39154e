// A million tokens x 8 layers x 8 KV heads through each mapping policy: state, addresses and page operations, no bytes
// and no timing. Half of every sequence is one prefill, half comes token by token. Host wall time, one core; the goal
// is one minute per policy.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "ftl/kv/kv_ftl.h"
#include "ftl/policies/registry.h"

namespace {

using namespace csdsim;
using namespace csdsim::ftl;

constexpr FlashGeometry kGeometry{8, 8, 4, 64, 256, Bytes::kib(4)};
constexpr KvShape kShape{8, 8, 128, 2048};
constexpr std::uint32_t kLive = 16;  ///< sequences at a time: 9 % of the flash; freed ones leave blocks to be erased

class Work {
 public:
  explicit Work(const PolicyEntry& policy)
      : blocks_(kGeometry, {0, kGeometry.blocks_per_plane}),
        store_(kGeometry, DataMode::timing),
        dram_(Bytes::gib(16)),
        ftl_({}, blocks_, store_, dram_, policy.make({kGeometry, {}})) {}

  void run(std::uint32_t tokens) {
    const std::uint32_t sequences = tokens / kShape.max_tokens;
    for (std::uint32_t first = 0; first < sequences; first += kLive) {
      for (std::uint32_t s = first; s < first + kLive; ++s) {
        ftl_.create_sequence(SequenceId{s}, kShape);
        append(s, 0, kShape.max_tokens / 2);
      }
      for (std::uint32_t t = kShape.max_tokens / 2; t < kShape.max_tokens; ++t) {
        for (std::uint32_t s = first; s < first + kLive; ++s) append(s, t, 1);
      }
      for (std::uint32_t s = first; s < first + kLive; ++s) erase(ftl_.free_sequence(SequenceId{s}).erases);
    }
  }

  const KvFtlStats& stats() const { return ftl_.stats(); }
  std::uint64_t refused() const { return refused_; }

 private:
  void append(std::uint32_t sequence, std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t layer = 0; layer < kShape.layers; ++layer) {
      const AppendResult result =
          ftl_.append(SequenceId{sequence}, LayerId{layer}, TokenIndex{first}, count, {KvHead{0}, kShape.kv_heads});
      refused_ += result.status == KvStatus::ok ? 0 : 1;
      for (const FlushJob& job : result.jobs) erase(ftl_.flush_done(job.id));
      erase(result.erases);
    }
  }
  void erase(const std::vector<PageOp>& erases) {
    for (const PageOp& op : erases) ftl_.erase_done(op.ppa);
  }

  BlockManager blocks_;
  BackingStore store_;
  DramBudget dram_;
  KvFtl ftl_;
  std::uint64_t refused_ = 0;
};

void million_tokens(benchmark::State& state, const PolicyEntry& policy) {
  const auto tokens = static_cast<std::uint32_t>(state.range(0));
  for (auto _ : state) {
    Work work(policy);
    work.run(tokens);
    if (work.refused() > 0) state.SkipWithError("appends were refused");
    const KvFtlStats& s = work.stats();
    const auto pages = static_cast<double>(s.token_pages_programmed + s.embedding_pages_programmed);
    state.counters["pages"] = benchmark::Counter(pages, benchmark::Counter::kIsRate);
    state.counters["moved"] = static_cast<double>(s.gc_pages_moved);
    state.counters["erases"] = static_cast<double>(s.erases);
  }
  state.SetItemsProcessed(std::int64_t{tokens} * kShape.layers * kShape.kv_heads);
}

}  // namespace

int main(int argc, char** argv) {
  const PolicyRegistry registry = PolicyRegistry::with_builtin();
  for (const PolicyEntry& policy : registry.entries()) {
    benchmark::RegisterBenchmark(policy.name.c_str(), million_tokens, policy)
        ->Arg(1 << 20)
        ->Iterations(1)
        ->Unit(benchmark::kSecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
