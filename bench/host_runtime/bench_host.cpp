// opt-6m on the CPU backend with one thread: decode, its parts, and prefill. items_per_second are tokens.
#include <benchmark/benchmark.h>

#include <filesystem>

#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/cpu/cpu_backend.h"

namespace {

using namespace csdsim;
using namespace csdsim::host;

struct Model {
  CpuBackend backend;
  Checkpoint checkpoint = open_checkpoint(std::filesystem::path(CSDSIM_SOURCE_DIR) / "models" / "opt-6m");
  std::unique_ptr<Decoder> decoder = make_decoder(checkpoint.config, *checkpoint.weights, backend);
};

Model& model() {
  static Model instance;
  return instance;
}

// Any text does: the work does not depend on the tokens.
std::vector<TokenId> tokens(std::size_t count) {
  std::vector<TokenId> result;
  for (std::uint32_t i = 0; i < count; ++i) result.push_back(TokenId{(i * 2654435761u >> 8) % 4096});
  return result;
}

// Decode at 1,000 tokens of context, held there: a step's K and V replace nothing, so the cache is rebuilt every
// `kSteps` steps outside the measured time.
void decode(benchmark::State& state, const std::function<std::unique_ptr<AttentionMethod>()>& method) {
  constexpr std::uint32_t kContext = 1000, kSteps = 64;
  const auto batch = static_cast<std::uint32_t>(state.range(0));
  const Decoder& decoder = *model().decoder;
  const auto prompt = tokens(kContext - kSteps / 2);
  HostAttention attention(decoder.config(), method());
  std::vector<SequenceId> sequences;
  for (std::uint32_t s = 0; s < batch; ++s) sequences.push_back(SequenceId{s});
  std::vector<TokenIndex> positions;
  const auto restart = [&](bool first) {
    for (const SequenceId sequence : sequences) {
      if (!first) attention.free_sequence(sequence);
      attention.create_sequence(sequence);
      const SequenceSlice slice{sequence, static_cast<std::uint32_t>(prompt.size())};
      prefill(decoder, attention, {&slice, 1}, prompt);
    }
    positions.assign(batch, TokenIndex{static_cast<std::uint32_t>(prompt.size())});
  };
  restart(true);
  const auto next = tokens(batch);
  std::uint32_t step = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(decode_step(decoder, attention, sequences, next, positions));
    for (TokenIndex& position : positions) ++position.value;
    if (++step % kSteps == 0) {
      state.PauseTiming();
      restart(false);
      state.ResumeTiming();
    }
  }
  state.SetItemsProcessed(state.iterations() * batch);
}

void decode_dense(benchmark::State& state) {
  decode(state, [] { return std::make_unique<DenseAttention>(); });
}
void decode_sparq(benchmark::State& state) {
  decode(state,
         [] { return std::make_unique<SparqAttention>(SparqOptions{.components = 8, .tokens = 128, .local = 32}); });
}

// A provider that does nothing: what the decoder costs beside attention.
class NoAttention final : public AttentionProvider {
 public:
  void create_sequence(SequenceId) override {}
  void free_sequence(SequenceId) override {}
  void store(LayerId, std::span<const SequenceSlice>, std::span<const Half>, std::span<const Half>) override {}
  void attend(LayerId, std::span<const SequenceId>, std::span<const float>, std::span<const Half>,
              std::span<const Half>, std::span<Half> out) override {
    std::fill(out.begin(), out.end(), Half{0});
  }
};

void decode_without_attention(benchmark::State& state) {
  const auto batch = static_cast<std::uint32_t>(state.range(0));
  const Decoder& decoder = *model().decoder;
  NoAttention attention;
  std::vector<SequenceId> sequences(batch);
  const std::vector<TokenIndex> positions(batch, TokenIndex{1000});
  const auto next = tokens(batch);
  for (auto _ : state) benchmark::DoNotOptimize(decode_step(decoder, attention, sequences, next, positions));
  state.SetItemsProcessed(state.iterations() * batch);
}

void prefill_tokens(benchmark::State& state) {
  const Decoder& decoder = *model().decoder;
  const auto prompt = tokens(static_cast<std::size_t>(state.range(0)));
  const SequenceSlice slice{SequenceId{0}, static_cast<std::uint32_t>(prompt.size())};
  for (auto _ : state) {
    HostAttention attention(decoder.config(), std::make_unique<DenseAttention>());
    attention.create_sequence(SequenceId{0});
    benchmark::DoNotOptimize(prefill(decoder, attention, {&slice, 1}, prompt));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK(decode_dense)->Arg(1)->Arg(4)->Arg(8)->Unit(benchmark::kMicrosecond);
BENCHMARK(decode_sparq)->Arg(1)->Arg(8)->Unit(benchmark::kMicrosecond);
BENCHMARK(decode_without_attention)->Arg(1)->Arg(2)->Arg(4)->Arg(8)->Arg(16)->Arg(32)->Unit(benchmark::kMicrosecond);
BENCHMARK(prefill_tokens)->Arg(1000)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
