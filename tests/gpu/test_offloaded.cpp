// Decoders with K and V in pinned host memory, copied on streams: the tokens of a decoder with K and V on the GPU, and
// the bytes of the closed form. On the emulated GPU also: the same bits in every order that events allow, and none of
// the waits can be left out.
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host_runtime/cpu/cpu_backend.h"
#include "host_runtime/cuda/dense_model.h"
#include "host_runtime/cuda/offloaded_model.h"
#include "tests/gpu/golden.h"
#include "tests/gpu/random_model.h"
#include "tests/gpu/tokens.h"

namespace {

using namespace csdsim;
using namespace csdsim::host;
using namespace gpu_test;

using Tokens = std::vector<std::vector<TokenId>>;

cuda::Context& context() {
  static cuda::Context instance;
  return instance;
}

ModelConfig small_model(Architecture architecture) {
  ModelConfig c;
  c.architecture = architecture;
  c.layers = 3;
  c.heads = 2;
  c.kv_heads = architecture == Architecture::opt ? 2 : 1;
  c.head_dim = 16;
  c.width = 32;
  c.ffn = 32;
  c.vocab = 61;
  c.max_positions = 128;
  c.tied_embeddings = architecture == Architecture::opt;
  return c;
}

Tokens ragged_prompts(const std::vector<std::uint32_t>& lengths, std::uint32_t vocab) {
  Tokens prompts;
  for (const std::uint32_t length : lengths)
    prompts.push_back(some_tokens(length, vocab, 40 + prompts.size() + length));
  return prompts;
}

std::vector<std::uint32_t> lengths_of(const Tokens& prompts) {
  std::vector<std::uint32_t> lengths;
  for (const auto& prompt : prompts) lengths.push_back(static_cast<std::uint32_t>(prompt.size()));
  return lengths;
}

/// A share of the cached tokens, at most the prompt.
OffloadPlan::Split share(double of) {
  return [of](std::span<const std::uint32_t> cached, std::span<const std::uint32_t> prompts) {
    std::vector<std::uint32_t> tokens;
    for (std::size_t i = 0; i < cached.size(); ++i)
      tokens.push_back(std::min(prompts[i], static_cast<std::uint32_t>(of * cached[i] + 0.5)));
    return tokens;
  };
}

struct Run {
  Tokens tokens;
  std::vector<float> logits;  ///< logits of the last step
  OffloadReport report;
};

template <class T>
Run run(const ModelConfig& config, const WeightSource& weights, const Tokens& prompts, std::uint32_t new_tokens,
        const OffloadPlan& plan) {
  cuda::OffloadedModel<T> model(context(), config, weights, lengths_of(prompts), new_tokens, plan);
  Run result;
  result.tokens = model.generate(prompts, {.max_new_tokens = new_tokens, .sampling = {}, .stop = {}});
  result.logits.assign(model.latest_logits().begin(), model.latest_logits().end());
  result.report = model.report();
  return result;
}

std::string describe(const OffloadPlan& p, double of) {
  return std::string(p.order == LayerOrder::row_by_row ? "rows" : "columns") + ", " + std::to_string(p.mini_batches) +
         " mini-batches, weights on the " + (p.weights_on_host ? "host" : "GPU") + " (" +
         std::to_string(p.weight_buffers) + "), " + std::to_string(p.kv_buffers) + " buffers, share " +
         (p.split ? std::to_string(of) : "none") + (p.activations_on_gpu ? ", activations on the GPU" : "") +
         (p.hides_recomputation ? "" : ", not hidden") + (p.waits_for_layers ? ", synchronous" : "");
}

/// What every stream has to move: closed forms of the plan, from shapes alone.
void expect_bytes(const ModelConfig& c, const Tokens& prompts, std::uint32_t new_tokens, const OffloadPlan& plan,
                  const OffloadReport& report) {
  const std::uint64_t layers = c.layers, steps = new_tokens - 1, kv = 4ull * c.kv_width(), x = 2ull * c.width;
  std::uint64_t kv_in = 0, recomputation = 0, rows = 0;
  std::vector<std::uint64_t> recomputed(steps), cached(steps);
  const std::size_t batch = prompts.size(), count = plan.mini_batches;
  const auto lengths = lengths_of(prompts);
  for (const std::uint32_t length : lengths) rows += length;
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (std::size_t first = 0, mb = 0; mb < count; ++mb) {
      const std::size_t size = batch / count + (mb < batch % count);
      std::vector<std::uint32_t> tokens;
      for (std::size_t i = first; i < first + size; ++i)
        tokens.push_back(lengths[i] + static_cast<std::uint32_t>(step));
      const std::vector<std::uint32_t> prompts_of(lengths.begin() + static_cast<long>(first),
                                                  lengths.begin() + static_cast<long>(first + size));
      const auto split = plan.split ? plan.split(tokens, prompts_of) : std::vector<std::uint32_t>(size);
      for (std::size_t i = 0; i < size; ++i) {
        kv_in += layers * kv * (tokens[i] - split[i]);
        recomputation += layers * x * split[i];
        recomputed[step] += split[i];
        cached[step] += tokens[i];
      }
      first += size;
    }
  }
  const bool moves = plan.order == LayerOrder::column_by_column && count > 1,
             rowwise = plan.order == LayerOrder::row_by_row;
  const std::uint64_t hidden = moves ? (layers - 1) * x * (rows + steps * batch) : 0;
  const bool keeps = plan.split && !plan.activations_on_gpu;
  const std::uint64_t matrices =
      2ull * c.width *
      (2ull * c.q_width() + 2ull * c.kv_width() + (c.architecture == Architecture::opt ? 2ull : 3ull) * c.ffn);
  EXPECT(report.of(CopyStream::kv_in).bytes == kv_in);
  EXPECT(report.of(CopyStream::kv_out).bytes == layers * kv * (rows + steps * batch));
  EXPECT(report.of(CopyStream::recomputation_in).bytes == (plan.activations_on_gpu ? 0 : recomputation));
  EXPECT(report.of(CopyStream::activations_in).bytes == hidden);
  EXPECT(report.of(CopyStream::activations_out).bytes == hidden + (keeps ? layers * x * rows : 0));
  EXPECT(report.of(CopyStream::weights_in).bytes ==
         (plan.weights_on_host ? new_tokens * layers * (rowwise ? count : 1) * matrices : 0));
  EXPECT(report.recomputed == recomputed);
  EXPECT(report.cached == cached);
}

GPU_TEST("K and V in host memory: tokens of K and V on the GPU, and the bytes of the closed form") {
  const std::vector<std::uint32_t> lengths =
      kEmulated ? std::vector<std::uint32_t>{5, 3, 9, 2} : std::vector<std::uint32_t>{9, 3, 4, 12, 70, 2};
  constexpr std::uint32_t kNew = kEmulated ? 3 : 6;
  for (const Architecture architecture : {Architecture::opt, Architecture::llama}) {
    const ModelConfig config = small_model(architecture);
    const RandomWeights weights(config, 51);
    const Tokens prompts = ragged_prompts(lengths, config.vocab);
    CpuBackend cpu;
    const auto decoder = make_decoder(config, weights, cpu);
    cuda::DenseModel<__half> dense(context(), config, weights, static_cast<std::uint32_t>(prompts.size()), 128);
    const Tokens expected = dense.generate(prompts, {.max_new_tokens = kNew, .sampling = {}, .stop = {}});
    Random random(52);
    for (int i = 0; i < (kEmulated ? 4 : 20); ++i) {
      const double shares[] = {0, 0.25, 0.5, 1};
      const double of = shares[i % 4];
      OffloadPlan plan;
      plan.order = random.below(2) == 0 ? LayerOrder::row_by_row : LayerOrder::column_by_column;
      plan.mini_batches = 1 + random.below(4);
      plan.weights_on_host = random.below(2) == 0;
      plan.weight_buffers = 1 + random.below(3);
      plan.kv_buffers = 1 + random.below(4);
      if (random.below(8) != 0) plan.split = share(of);
      plan.activations_on_gpu = plan.split && random.below(3) == 0;
      plan.hides_recomputation = random.below(2) == 0;
      plan.waits_for_layers = random.below(4) == 0;
      note(describe(plan, of));
      const Run found = run<__half>(config, weights, prompts, kNew, plan);
      expect_near_ties(*decoder, prompts, found.tokens, expected, 2e-2f);
      expect_bytes(config, prompts, kNew, plan, found.report);
    }
  }
}

#ifdef CSDSIM_GPU_TEST_EMULATED
/// Everything that a plan can have: mini-batches whose lengths differ, weights from the host, a part recomputed.
OffloadPlan full_plan(LayerOrder order, std::uint32_t mini_batches, std::uint32_t kv_buffers) {
  OffloadPlan plan;
  plan.order = order;
  plan.mini_batches = mini_batches;
  plan.weights_on_host = true;
  plan.weight_buffers = 1;  // with a buffer for each of the few layers, a late copy would bring what is there already
  plan.kv_buffers = kv_buffers;
  plan.split = share(0.5);
  return plan;
}

struct Race {
  OffloadPlan plan;
  std::vector<std::uint32_t> lengths;
};

/// The recomputed rows of an item reach beyond the new row of the item that had its buffer, and the other way round.
std::vector<Race> races() {
  const std::vector<std::uint32_t> lengths{13, 3, 17};
  std::vector<Race> all{{full_plan(LayerOrder::column_by_column, 3, 2), lengths},
                        {full_plan(LayerOrder::row_by_row, 1, 2), {7}}};
  all.back().plan.hides_recomputation = false;
  return all;
}

constexpr std::uint32_t kRaceTokens = 3;

ModelConfig race_model() {
  ModelConfig config = small_model(Architecture::opt);
  config.layers = 2;
  config.heads = config.kv_heads = 1;
  config.width = config.ffn = config.head_dim;  // so small that no product needs the tensor cores, which takes longest
  config.vocab = 29;
  return config;
}

Run ordered(const Race& race, std::uint64_t seed, std::function<bool(const emulation::Wait&)> left_out = nullptr) {
  static const ModelConfig config = race_model();
  static const RandomWeights weights(config, 61);
  const Tokens prompts = ragged_prompts(race.lengths, config.vocab);
  context().stream.synchronise();
  emulation::restart(seed);
  emulation::leave_out(std::move(left_out));
  Run result;
  try {
    result = run<__half>(config, weights, prompts, kRaceTokens, race.plan);
  } catch (const UserError&) {  // logits that are no numbers: no tokens
  }
  emulation::leave_out(nullptr);
  return result;
}

/// The bits of the logits, of which some may be NaN.
bool same(const Run& a, const Run& b) {
  return a.tokens == b.tokens && a.logits.size() == b.logits.size() &&
         std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
}

GPU_TEST("the same bits in every order that the events allow") {
  for (const Race& race : races()) {
    const Run first = ordered(race, 1);
    for (std::uint64_t seed = 2; seed < 6; ++seed) {
      if (same(ordered(race, seed), first)) continue;
      report("seed " + std::to_string(seed) + ": other results, " + describe(race.plan, 0.5), __FILE__, __LINE__);
    }
  }
}

/// Which event of a buffer it is, whichever the buffer: the model makes those of hidden states, of K and V and of
/// weights in this order.
std::string kind_of(const OffloadPlan& plan, std::uint32_t event) {
  const std::uint32_t hidden = plan.order == LayerOrder::column_by_column && plan.mini_batches > 1 ? 2 : 1;
  if (event < 3 * hidden) return "hidden states " + std::to_string(event % 3);
  event -= 3 * hidden;
  if (event < 7 * plan.kv_buffers) return "K and V " + std::to_string(event % 7);
  return "weights " + std::to_string((event - 7 * plan.kv_buffers) % 3);
}

GPU_TEST("none of the waits can be left out") {
  constexpr std::uint64_t kSeeds = 24;
  const Race race = races().front();
  const Run correct = ordered(race, 1);
  using Kind = std::pair<std::uint32_t, std::string>;
  const auto kind = [&](const emulation::Wait& wait) { return Kind{wait.first, kind_of(race.plan, wait.second)}; };
  std::set<Kind> kinds;
  for (const emulation::Wait& wait : emulation::waits()) kinds.insert(kind(wait));
  std::size_t runs = 0;
  for (const Kind& left_out : kinds) {
    const auto of_kind = [&](const emulation::Wait& wait) { return kind(wait) == left_out; };
    std::uint64_t seed = 1;
    while (seed <= kSeeds && same(ordered(race, seed, of_kind), correct)) ++seed;
    runs += std::min(seed, kSeeds);
    if (seed <= kSeeds) continue;
    report("stream " + std::to_string(left_out.first) + " need not wait for event: " + left_out.second, __FILE__,
           __LINE__);
  }
  note(std::to_string(kinds.size()) + " waits, " + std::to_string(runs) + " runs");
  EXPECT(kinds.size() == 18);
}
#endif

}  // namespace

int main(int argc, char** argv) { return gpu_test::run(argc, argv, true); }
